"""``run/server.json`` of a workspace."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from pydantic import ValidationError

from specdeploy.adapters.durable import explained, next_log, replace_file
from specdeploy.core.serving import ServerRecord
from specdeploy.errors import ArtifactError, ServerError

RECORD: Final = "run/server.json"


@final
class LocalServerRecords:
    """The record of the one server of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self._path = workspace / RECORD

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the right to start a server here; the kernel frees it when we die.

        Raises:
            ServerError: another command holds it.
            ConfigError: the workspace cannot be written.
        """
        with explained(self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.with_suffix(".lock").open("a")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise self._held_error() from error
            yield

    def _held_error(self) -> ServerError:
        record = self.read()
        where = f", at {record.endpoints.grpc} (pid {record.pid})" if record else ""
        return ServerError(
            f"another specdeploy serve holds this workspace{where}",
            hint="stop it with: specdeploy stop; or use another --workspace",
        )

    def read(self) -> ServerRecord | None:
        """Return the record, or None when there is none.

        Raises:
            ArtifactError: it is there and cannot be read.
        """
        try:
            return ServerRecord.model_validate_json(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreadable(str(error.strerror)) from error
        except ValidationError as error:
            raise self._unreadable(error.errors()[0]["msg"]) from error

    def _unreadable(self, why: str) -> ArtifactError:
        return ArtifactError(
            f"{self._path} cannot be read: {why}",
            hint="end that tritonserver by hand and remove the file",
        )

    def write(self, record: ServerRecord) -> None:
        """Replace the record in one step.

        Raises:
            ConfigError: the workspace cannot be written.
        """
        replace_file(self._path, record.model_dump_json(indent=2) + "\n")

    def remove(self, record: ServerRecord) -> None:
        """Forget a server; the record of another, which may have come meanwhile, stays.

        Raises:
            ArtifactError: the record cannot be read any more.
            ConfigError: the workspace cannot be written.
        """
        if record.is_of(self.read()):
            with explained(self._path):
                self._path.unlink(missing_ok=True)

    def next_log(self) -> Path:
        """Return a new numbered log file of the workspace.

        Raises:
            ConfigError: the workspace cannot be written.
        """
        log = next_log(self._path.parent.parent / "logs", "tritonserver")
        with explained(log):
            log.touch(exist_ok=False)
        return log
