"""Find the server to ask."""

from __future__ import annotations

from pathlib import Path

from specdeploy.core.serving import ServerRecord
from specdeploy.errors import ServerError
from specdeploy.workflows.server_ports import ServerLauncher, ServerRecords


def find_server(
    workspace: Path, *, records: ServerRecords, launcher: ServerLauncher
) -> ServerRecord:
    """Return the running server of a workspace.

    Raises:
        ServerError: none is recorded, it is gone, or it is not ready yet.
    """
    record = records.read()
    if record is None:
        raise ServerError(
            f"no server is recorded in {workspace}",
            hint="start one with: specdeploy serve; or name an address with --url HOST:PORT",
        )
    if not launcher.is_running(record):
        raise ServerError(
            f"the server recorded in {workspace} (pid {record.pid}) is gone",
            hint=f"start one with: specdeploy serve; its log is in {record.log}",
        )
    if record.state != "ready":
        raise ServerError(
            f"the server at {record.endpoints.grpc} is {record.state}", hint="try again soon"
        )
    return record
