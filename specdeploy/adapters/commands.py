"""Run an external command to its end: never through a shell, never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, final

from specdeploy.errors import CommandFailedError, ConfigError, MissingToolError
from specdeploy.events import Reporter
from specdeploy.failure import undone_on_failure

TAIL_LINES: Final = 20
LINE_BYTES: Final = 1 << 16
GRACE_S: Final = 5.0
PR_SET_PDEATHSIG: Final = 1


@final
class LocalRunner:
    """Runs commands on this machine, each in a process group of its own.

    The group ends with the command, with an interrupt, and (on Linux) with this process,
    however that ends: a killed build leaves nothing that still writes.
    """

    def __init__(
        self,
        reporter: Reporter,
        *,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter = reporter
        self._environment = environment
        self._clock = clock

    def run(
        self, argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Run ``argv``; write its output to ``log`` as it comes.

        Raises:
            MissingToolError: the program is not there, or is none that this system runs.
            CommandFailedError: it ended with a non-zero status; carries its last lines.
            ConfigError: the log cannot be written.
        """
        program = _find(argv[0], self._environment.get("PATH"))
        started = self._clock()
        try:
            with log.open("wb") as file:
                self._reporter.command_started(argv, log=log)
                file.write(f"$ {shlex.join(argv)}\n".encode(errors="replace"))
                status, tail = self._follow([program, *argv[1:]], file, environment)
        except OSError as error:
            raise ConfigError(f"cannot write {log}: {error.strerror}") from error
        if status:
            raise CommandFailedError(argv, status, log, tail)
        self._reporter.command_finished(argv, seconds=self._clock() - started)

    def _follow(
        self, argv: Sequence[str], log: IO[bytes], environment: Mapping[str, str] | None
    ) -> tuple[int, str]:
        process = self._start(argv, log, environment)
        with undone_on_failure(lambda: _end_group(process)):
            tail = self._copy_output(process, log)
            status = process.wait()
        # What the command left in the background could still write.
        _signal_group(process, signal.SIGKILL)
        return status, "\n".join(tail)

    def _start(
        self, argv: Sequence[str], log: IO[bytes], environment: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**self._environment, **(environment or {})},
                # `python -m` looks for modules in the current folder first: it must be one where
                # nobody puts any, not a downloaded checkpoint in which the user happens to be.
                cwd=Path(log.name).parent,
                start_new_session=True,
                preexec_fn=_die_with_parent(),  # noqa: PLW1509 - one system call, already loaded
            )
        except OSError as error:
            raise MissingToolError(f"{argv[0]} cannot be run: {error.strerror}") from error

    def _copy_output(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> deque[str]:
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        with process.stdout as output:
            while line := output.readline(LINE_BYTES):
                log.write(line)
                log.flush()
                tail.append(line.decode(errors="replace").rstrip())
                self._reporter.command_output(tail[-1])
        return tail


def _find(program: str, folders: str | None) -> str:
    path = shutil.which(program, path=folders)
    if path is None:
        where = "it is not an executable file" if "/" in program else "it is not on PATH"
        raise MissingToolError(f"{program} cannot be run: {where}")
    return path


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the whole group: first politely, then for certain."""
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _die_with_parent() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arrange
