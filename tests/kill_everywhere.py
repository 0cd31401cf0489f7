"""Kill a build at chosen points of its own execution; run as a script of its own.

    python tests/kill_everywhere.py FOLDER POINTS

The points are spread evenly over all calls and returns that the interpreter sees, so that
every step of staging, sealing and renaming is interrupted, unflushed buffers included. Forks,
which is why it needs a process without threads. Writes one JSON document to stdout.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

from build_support import FakeRuntime, Setup

from specdeploy import wiring
from specdeploy.errors import ArtifactError
from specdeploy.workflows.build import BuildRequest, build
from specdeploy.workflows.verify import verify


def main(folder: Path, points: int) -> None:
    """Kill, look, build again, look again; tell what was seen."""
    setup = Setup(folder)
    total = _count_events(setup)
    killed, broken = 0, []
    for number in range(points):
        shutil.rmtree(setup.workspace, ignore_errors=True)
        moment = 1 + number * total // points
        killed += _in_child(partial(_build_and_die, setup, moment)) == -signal.SIGKILL
        broken += [f"after a kill at {moment}: {line}" for line in _broken(setup.workspace)]
        if _in_child(partial(_build, setup)) != 0:
            broken.append(f"the build after a kill at {moment} failed")
        broken += [f"after the next build: {line}" for line in _broken(setup.workspace)]
        if not (setup.workspace / "repository").exists():
            broken.append(f"after a kill at {moment} the next build made no link")
    sys.stdout.write(json.dumps({"events": total, "killed": killed, "broken": broken}))


def _build(setup: Setup) -> None:
    build(BuildRequest(setup.deployment(), FakeRuntime()), setup.bench())


def _build_and_die(setup: Setup, moment: int) -> None:
    seen = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        del frame, event, argument
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    _build(setup)


def _count_events(setup: Setup) -> int:
    """Return how many events a whole build has; a first build also fills caches."""
    _build(setup)
    shutil.rmtree(setup.workspace)
    seen = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        del frame, event, argument
        seen += 1

    sys.setprofile(count)
    _build(setup)
    sys.setprofile(None)
    return seen


def _in_child(work: Callable[[], None]) -> int:
    """Fork, work, and return the exit status (negative: the signal that ended it)."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended)


def _broken(workspace: Path) -> list[str]:
    """Describe every artifact that has its final name and is not whole."""
    try:
        report = verify(workspace, artifacts=wiring.fresh_artifacts())
    except ArtifactError:
        return []  # nothing has a final name yet
    link = workspace / "repository"
    # A link that is not there yet is taken for nothing; one that leads nowhere is.
    found = [c for c in report.artifacts if c.path != str(link) or link.is_symlink()]
    return [f"{c.path}: {c.differences}" for c in found if c.differences]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
