from __future__ import annotations

import pytest

from specdeploy.failure import undone_on_failure


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_fails_or_is_interrupted_is_undone(failure: type[BaseException]) -> None:
    done: list[str] = []
    with pytest.raises(failure), undone_on_failure(lambda: done.append("undone")):
        raise failure
    assert done == ["undone"]


def test_a_block_that_ends_well_is_not_undone() -> None:
    done: list[str] = []
    with undone_on_failure(lambda: done.append("undone")):
        done.append("work")
    assert done == ["work"]
