"""What to do when a block does not end well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def undone_on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` when the block fails or is interrupted, and let the failure go on.

    ``BaseException``, because Ctrl-C and the end of the program must not leave a process
    running any more than an error may.
    """
    try:
        yield
    except BaseException:
        undo()
        raise
