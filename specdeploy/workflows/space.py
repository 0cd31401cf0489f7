"""Refuse a build that plainly does not fit on the disk, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from specdeploy.core.artifacts import StepReport
from specdeploy.errors import ConfigError
from specdeploy.units import format_bytes
from specdeploy.workflows.ports import Store

# From 16 bit to 4: what is built from a checkpoint is seldom smaller.
SMALLEST_SHARE: Final = 4


def require_space(steps: Sequence[StepReport], store: Store) -> None:
    """Compare what the stale steps write with what is free.

    A step of no known size counts a quarter of its input files, so that a build that could
    fit is not refused; one that runs out of room later fails with the numbers too.

    Raises:
        ConfigError: there is less room than that.
    """
    needed = sum(_size(step) for step in steps if step.action == "build")
    free = store.free_bytes()
    if needed > free:
        raise ConfigError(
            f"the build writes {format_bytes(needed)} or more, and {format_bytes(free)} are free "
            f"in {store.root}",
            hint="make room, or set another workspace",
        )


def _size(step: StepReport) -> int:
    sources = sum(file.size_bytes for file in step.inputs)
    return step.disk_bytes or sources // SMALLEST_SHARE
