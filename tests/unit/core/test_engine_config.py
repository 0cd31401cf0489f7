"""An engine's config.json is held against the plan."""

from __future__ import annotations

import pytest

from specdeploy.core.engine_config import config_mismatches

CONFIG: dict[str, object] = {"version": "1.2.1", "build_config": {"max_draft_len": 4}}


def mismatches(**expected: str | int | None) -> list[str]:
    return list(config_mismatches(CONFIG, {k.replace("__", "."): v for k, v in expected.items()}))


def test_a_config_that_is_as_planned_has_no_mismatch() -> None:
    assert mismatches(version="1.2.1", build_config__max_draft_len=4) == []


@pytest.mark.parametrize("planned", ["1.2", "1.2.1"])
def test_a_built_version_may_be_more_exact_than_the_planned_one(planned: str) -> None:
    assert mismatches(version=planned) == []


@pytest.mark.parametrize("planned", ["1.2.0", "1.1", "no version"])
def test_another_version_is_told(planned: str) -> None:
    assert mismatches(version=planned) == [f"version is '1.2.1', planned was {planned!r}"]


def test_a_place_that_is_not_there_is_told() -> None:
    assert mismatches(build_config__max_draft_len__deeper=4) == [
        "build_config.max_draft_len.deeper is None, planned was 4"
    ]
