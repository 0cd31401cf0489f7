"""Stop the server of a workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from specdeploy.core.serving import StopReport
from specdeploy.errors import ArtifactError
from specdeploy.workflows.server_ports import ServerLauncher, ServerRecords

PATIENCE_S: Final = 15.0


def stop(workspace: Path, *, records: ServerRecords, launcher: ServerLauncher) -> StopReport:
    """End the recorded server, in order when it can, and remove all that it left.

    A process that merely got the recorded pid is left alone.

    Raises:
        ArtifactError: no server is recorded here.
        ServerError: a process survived being killed.
    """
    record = records.read()
    if record is None:
        raise ArtifactError(
            f"no server is recorded in {workspace}",
            hint="name the workspace of the one to stop: specdeploy stop WORKSPACE",
        )
    # Tells a serve that watches it in the foreground that its end is wanted.
    records.write(record.evolve(state="stopping"))
    running = launcher.stop_recorded(record, patience_s=PATIENCE_S)
    records.remove(record)
    return StopReport(
        workspace=str(workspace), pid=record.pid, outcome="stopped" if running else "was-gone"
    )
