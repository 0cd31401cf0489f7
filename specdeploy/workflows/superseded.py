"""What a build may remove: artifacts that a newer build took the place of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specdeploy.core.artifacts import StepReport
from specdeploy.errors import ArtifactError
from specdeploy.workflows.workbench import Workbench


def remove_superseded(steps: Sequence[StepReport], previous: Path | None, bench: Workbench) -> None:
    """Remove what neither this build, the one before it nor a server uses.

    The repository that was current before stays too, for a server that is just starting and
    for whoever goes back to the former settings. When a record cannot be read nothing is
    removed.

    Args:
        steps: This build's, whose outputs stay.
        previous: The repository that was the current one before this build.
        bench: The outside world, with the workspace locked.
    """
    keep = {Path(step.output) for step in steps}
    try:
        used = (previous, bench.store.current_repository(), bench.store.served_repository())
        for repository in filter(None, used):
            record = bench.artifacts.read_repository(repository)
            keep |= {repository, *map(Path, record.absolute_paths)}
    except ArtifactError:
        return
    for path in bench.store.remove_all_but(keep):
        bench.reporter.file_written("remove", path)
