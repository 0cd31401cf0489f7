"""A build killed at any moment leaves nothing half-made that is taken for whole."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from built_pairs import engines, finish, run_json, start, write_pair

from specdeploy import wiring
from specdeploy.workflows.verify import verify


def kill_after(folder: Path, seconds: float) -> None:
    build = start(folder, "build", "--json")
    try:
        build.wait(seconds)
    except subprocess.TimeoutExpired:
        build.kill()
    finish(build)


def require_only_whole_artifacts(folder: Path) -> None:
    """Whatever has the name of an artifact must be one."""
    workspace = folder / ".specdeploy"
    artifacts = [*engines(folder), *workspace.glob("repositories/[a-z0-9]*")]
    if (workspace / "repository").is_symlink():
        artifacts.append(workspace / "repository")
    for artifact in artifacts:
        report = verify(artifact, artifacts=wiring.fresh_artifacts())
        assert report.verdict == "whole", report


def duration_of_a_build(folder: Path) -> float:
    started = time.monotonic()
    run_json(folder, "build")
    duration = time.monotonic() - started
    shutil.rmtree(folder / ".specdeploy")
    return duration


def sweep(folder: Path, kills: int) -> None:
    """Kill builds at moments that cover one whole build, each followed by a good one.

    The moments are seeded; the build's own duration, measured here, only scales them.
    """
    duration = duration_of_a_build(folder)
    moments = random.Random(20_260_101)
    for number in range(kills):
        kill_after(folder, duration * (number + moments.random()) / kills)
        require_only_whole_artifacts(folder)
        if number % 2:
            continue  # every other time the next build meets what two kills left
        report = run_json(folder, "build")
        assert report["performed"]
        require_only_whole_artifacts(folder)
        assert not list((folder / ".specdeploy").rglob(".*.staging-*"))
        shutil.rmtree(folder / ".specdeploy")
    assert run_json(folder, "build")["performed"]
    assert run_json(folder, "verify", ".specdeploy")["verdict"] == "whole"


def test_builds_killed_at_5_moments_leave_only_whole_artifacts(tmp_path: Path) -> None:
    sweep(write_pair(tmp_path), 5)


@pytest.mark.full
def test_builds_killed_at_50_moments_leave_only_whole_artifacts(tmp_path: Path) -> None:
    sweep(write_pair(tmp_path), 50)


def kill_everywhere(folder: Path, points: int) -> None:
    script = Path(__file__).parent.parent / "kill_everywhere.py"
    result = subprocess.run(
        [sys.executable, str(script), str(folder), str(points)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    assert seen["broken"] == []
    assert seen["killed"] > 0.9 * points


def test_a_build_killed_at_any_of_60_steps_of_its_own_leaves_only_whole_artifacts(
    tmp_path: Path,
) -> None:
    kill_everywhere(tmp_path, 60)


@pytest.mark.full
def test_a_build_killed_at_any_of_1000_steps_of_its_own_leaves_only_whole_artifacts(
    tmp_path: Path,
) -> None:
    kill_everywhere(tmp_path, 1000)
