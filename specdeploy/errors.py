"""Every error a user can meet, with its exit code.

::

    SpecdeployError                 1   root; always a message, often a hint
    ├─ ConfigError                  2   a flag, a file or a path is wrong or unreadable
    │  └─ CheckpointError           2   a checkpoint directory cannot be read
    ├─ IncompatiblePairError        3   carries the report
    ├─ InfeasiblePlanError          4   nothing fits; names the binding constraint
    ├─ MissingToolError             5   a program, library or device is absent
    ├─ CommandFailedError           6   carries argv, status, log and the last lines
    ├─ ArtifactError                7   missing, stale, or different from its manifest
    ├─ ServerError                  8   did not start, was not ready, or died
    ├─ BenchmarkError               9   it ran, but its numbers should not be trusted
    └─ GateError                   10   a gate or a regression check failed

An interrupt exits 130; anything else is a bug and exits 70.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar


class SpecdeployError(Exception):
    """The root of every expected failure.

    Attributes:
        exit_code: The status the command line ends with.
        hint: What the user can do about it, or None.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(SpecdeployError):
    """A flag, a file or a path is wrong or unreadable."""

    exit_code = 2


class CheckpointError(ConfigError):
    """A checkpoint directory cannot be read; names the file."""


class IncompatiblePairError(SpecdeployError):
    """The draft cannot serve this target."""

    exit_code = 3


class InfeasiblePlanError(SpecdeployError):
    """Nothing fits; the message names the binding constraint."""

    exit_code = 4


class MissingToolError(SpecdeployError):
    """A program, library or device is absent; the message says where we looked."""

    exit_code = 5


class CommandFailedError(SpecdeployError):
    """An external command ended with a non-zero status."""

    exit_code = 6

    def __init__(
        self,
        argv: Sequence[str],
        status: int,
        log: Path,
        tail: str = "",
        *,
        cause: tuple[str, str] | None = None,
    ) -> None:
        """``cause``: why, as a sentence, and what to do; told instead of the last lines."""
        self.argv, self.status, self.log, self.tail = tuple(argv), status, log, tail
        ending = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        if status == -9:  # noqa: PLR2004 - SIGKILL, what the kernel sends when memory is out
            ending += " (most likely the host ran out of memory)"
        text, hint = f"{shlex.join(self.argv[:3])} {ending}", f"the full output is in {log}"
        if cause is not None:
            text, hint = f"{cause[0]} ({text})", f"{cause[1]}; {hint}"
        elif tail:
            text = f"{text}\n{tail}"
        super().__init__(text, hint=hint)


class ArtifactError(SpecdeployError):
    """An artifact is missing, stale, or not what its manifest says."""

    exit_code = 7


class ServerError(SpecdeployError):
    """The server did not start, was not ready, or died."""

    exit_code = 8


class BenchmarkError(SpecdeployError):
    """The benchmark ran, but its numbers should not be trusted."""

    exit_code = 9


class GateError(SpecdeployError):
    """A gate or a regression check failed."""

    exit_code = 10
