"""What happens during a workflow, told to whoever wants to show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class Reporter:
    """Receives progress; every method is a no-op to override.

    Workflows and adapters call it, ``cli`` supplies a talkative subclass, tests a recording
    one. Nothing here reaches stdout.
    """

    def stage_started(self, stage: str) -> None:
        """A named stage of a workflow begins."""

    def stage_finished(self, stage: str, *, seconds: float) -> None:
        """The stage ended well."""

    def note(self, message: str) -> None:
        """A fact worth knowing that is not a problem."""

    def warning(self, message: str) -> None:
        """Something the user should look at; the workflow goes on."""

    def command_started(self, argv: Sequence[str], *, log: Path) -> None:
        """An external command starts and writes to ``log``."""

    def command_output(self, line: str) -> None:
        """One line that the running command printed."""

    def command_finished(self, argv: Sequence[str], *, seconds: float) -> None:
        """The command ended with status 0."""

    def artifact_reused(self, name: str, *, path: Path) -> None:
        """An artifact with the right digest was there already."""

    def artifact_built(self, name: str, *, path: Path) -> None:
        """An artifact was built and moved into place."""

    def file_written(self, verb: str, path: Path) -> None:
        """A file was handled; ``verb`` is create, update, identical or remove."""

    def model_state(self, model: str, state: str, *, seconds: float) -> None:
        """A served model changed state (``loading``, ``ready``, ``failed``)."""
