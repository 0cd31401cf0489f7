"""Everything that a build works with, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdeploy.events import Reporter
from specdeploy.workflows.ports import (
    Artifacts,
    CommandRunner,
    Hasher,
    Renderer,
    Store,
    ToolVersions,
)


@dataclass(frozen=True, slots=True)
class Workbench:
    """The outside world of one build.

    Attributes:
        clock: Seconds since 1970.
        python: The interpreter that ``{python}`` in a command stands for.
        host: This machine's name, an annotation.
    """

    store: Store
    artifacts: Artifacts
    hasher: Hasher
    tools: ToolVersions
    renderer: Renderer
    runner: CommandRunner
    reporter: Reporter
    clock: Callable[[], float]
    python: str
    host: str
