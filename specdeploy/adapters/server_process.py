"""One server process with all its children: started apart, watched, and ended whole."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

from specdeploy.adapters.durable import explained
from specdeploy.adapters.procfs import ProcessFacts, processes_with, read_process
from specdeploy.core.serving import ServerRecord
from specdeploy.errors import MissingToolError, ServerError

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Triton's backends put their regions
IDENTITY_NAME: Final = "SPECDEPLOY_SERVER"
_POLL_S: Final = 0.05
_KILL_PATIENCE_S: Final = 10.0

# Runs between fork and tritonserver: asks the kernel for SIGTERM when the process that
# started us dies, however it dies. A preexec_fn would do the same but is unsafe with threads.
_DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def identity_variable(identity: str) -> str:
    """Return the ``NAME=value`` that marks every process of one server."""
    return f"{IDENTITY_NAME}={identity}"


def start_process(
    argv: Sequence[str], *, environment: Mapping[str, str], log: Path, outlives_us: bool
) -> subprocess.Popen[bytes]:
    """Start ``argv`` in a session of its own, without a terminal, writing to ``log``.

    Args:
        argv: The program and its arguments.
        environment: The whole environment of the process.
        log: Receives standard output and error; begun anew.
        outlives_us: False makes the process receive SIGTERM when this process dies, provided
            that the main thread starts it: the kernel watches the thread, not the process.

    Raises:
        MissingToolError: the program cannot be run.
    """
    if not outlives_us and threading.current_thread() is threading.main_thread():
        argv = [sys.executable, "-ISc", _DIE_WITH_PARENT, str(os.getpid()), *argv]
    try:
        with log.open("wb") as output:
            return subprocess.Popen(
                argv,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise MissingToolError(f"cannot run {argv[0]}: {error.strerror}") from error


def process_start_time(pid: int) -> float | None:
    """Return when a process started, in clock ticks since boot, or None when it is gone."""
    facts = read_process(pid)
    return facts.started if facts else None


@final
class ServerProcesses:
    """The processes of one server: tritonserver and whatever it started.

    Each carries the server's identity in its environment, so that they are found wherever
    they moved to, and a process that merely got the same pid later is never one of them.
    """

    def __init__(self, record: ServerRecord) -> None:
        self._leader = record.pid
        self._started = record.process_started
        self._mark = identity_variable(record.identity)

    def members(self) -> list[ProcessFacts]:
        """Return the living ones."""
        return processes_with(self._mark)

    def stop(self, patience_s: float, *, hurry: Callable[[], bool]) -> bool:
        """End every process: SIGTERM to the leader, then SIGKILL to what is left.

        Args:
            patience_s: How long the leader may take to end in order.
            hurry: Ends the patience early once it returns True.

        Returns:
            True when nothing had to be killed.

        Raises:
            ServerError: a process survived SIGKILL.
        """
        if process_start_time(self._leader) == self._started:
            _signal(self._leader, signal.SIGTERM)
        in_order = self._wait_gone(patience_s, hurry)
        if not in_order:
            self._kill()
        return in_order

    def _kill(self) -> None:
        for facts in self.members():
            _signal(facts.pid, signal.SIGKILL)
        if not self._wait_gone(_KILL_PATIENCE_S, lambda: False):
            pids = ", ".join(str(facts.pid) for facts in self.members())
            raise ServerError(f"processes {pids} of the server survive SIGKILL")

    def _wait_gone(self, patience_s: float, hurry: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + patience_s
        while self.members():
            if time.monotonic() > deadline or hurry():
                return False
            time.sleep(_POLL_S)
        return True


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def plain_path(path: str, *, alias: str) -> str:
    """Return ``path``, or a link to it when a shell would not take it as one word.

    Triton's Python backend starts its stubs through a shell and quotes nothing. A link is
    named ``alias`` and lies with the shared memory, so that it goes when that is removed.

    Raises:
        ConfigError: the link cannot be made.
    """
    if shlex.quote(path) == path:
        return path
    link = SHARED_MEMORY / alias
    with explained(link):
        link.symlink_to(path)
    return str(link)


def remove_shared_memory(prefix: str) -> None:
    """Remove the shared-memory files and links that a server left behind."""
    for path in SHARED_MEMORY.glob(f"{prefix}*"):
        path.unlink(missing_ok=True)
