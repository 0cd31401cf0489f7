"""What serving needs from the outside world; adapters implement it, tests fake it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from specdeploy.core.generation import GenerationOptions, GenerationResult
from specdeploy.core.serving import LaunchSpec, ServerHealth, ServerRecord


class RunningServer(Protocol):
    """A server process that was started here."""

    @property
    def record(self) -> ServerRecord:
        """What it is, in state ``starting``."""

    def exit_status(self) -> int | None:
        """Return the status it ended with (negative: a signal), or None while it lives."""

    def lost_models(self) -> list[str]:
        """Return the models whose process has ended since the first call."""

    def new_log_lines(self) -> list[str]:
        """Return the complete lines that were written since the last call."""

    def log_lines(self) -> list[str]:
        """Return every line so far."""

    def stop(self, *, hurry: Callable[[], bool]) -> bool:
        """End it in order, else (or once ``hurry`` says so) by force; leave nothing behind.

        Returns True when nothing had to be killed.
        """


class ServerLauncher(Protocol):
    """Starts servers, and deals with those that earlier commands started."""

    def launch(self, spec: LaunchSpec, *, log: Path) -> RunningServer:
        """Start a server that writes to ``log``; return at once, long before it is ready.

        Raises:
            MissingToolError: there is no tritonserver for this Python.
            ServerError: a port that was asked for is in use.
            ConfigError: a file that it needs cannot be written.
        """

    def is_running(self, record: ServerRecord) -> bool:
        """Tell whether the recorded process lives; one that reuses its pid does not count."""

    def stop_recorded(self, record: ServerRecord, *, patience_s: float) -> bool:
        """End a recorded server and remove what it left; return whether it was running."""


class ServedModels(Protocol):
    """A blocking client of one server."""

    def health(self) -> ServerHealth:
        """Return what the server says about itself.

        Raises:
            ServerError: it does not answer.
        """

    def generate(self, prompt: str, options: GenerationOptions) -> GenerationResult:
        """Return one whole answer.

        Raises:
            ServerError: no answer, an error, or too late.
        """

    def close(self) -> None:
        """End the connection."""


class ConnectToServer(Protocol):
    """Connects to a server's gRPC address."""

    def __call__(self, url: str, *, timeout_s: float, model: str | None) -> ServedModels:
        """Return a client whose every call ends within ``timeout_s``."""


class ServerRecords(Protocol):
    """``run/server.json`` of one workspace."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the right to start a server here.

        Raises:
            ServerError: another command holds it.
        """

    def read(self) -> ServerRecord | None:
        """Return the record, or None when there is none.

        Raises:
            ArtifactError: it is there and cannot be read.
        """

    def write(self, record: ServerRecord) -> None:
        """Replace the record in one step."""

    def remove(self, record: ServerRecord) -> None:
        """Forget a server; the record of another, which may have come meanwhile, stays."""

    def next_log(self) -> Path:
        """Return a new numbered log file of the workspace."""


class StopSwitch(Protocol):
    """Tells whether somebody wants the work to end."""

    @property
    def pressed(self) -> bool:
        """True once it was asked for."""

    @property
    def pressed_again(self) -> bool:
        """True once it was asked for a second time: at once, then."""

    def breaking(self) -> AbstractContextManager[None]:
        """Let a press end what runs inside by an exception.

        Raises:
            KeyboardInterrupt: pressed before or meanwhile.
        """


class Clock(Protocol):
    """Time, so that tests need not wait for it."""

    def now(self) -> float:
        """Return seconds on a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
