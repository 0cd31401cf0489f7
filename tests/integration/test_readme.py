from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SESSION = [
    line.removeprefix("$ ") for line in README.splitlines() if line.startswith("$ specdeploy ")
]


def in_readme(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "specdeploy", *words]
    return subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.triton
def test_the_session_in_the_readme_runs_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    *before, stop = [shlex.split(line)[1:] for line in SESSION]
    try:
        done = {words[0]: in_readme(words, tmp_path) for words in before}
    finally:
        stopped = in_readme(stop, tmp_path)
    failed = {name: run.stderr for name, run in done.items() if run.returncode}
    assert not failed
    assert stopped.returncode == 0, stopped.stderr
    assert done["ask"].stdout.strip()
    assert "tokens/s" in done["ask"].stderr


def test_the_session_shows_the_main_job() -> None:
    shown = [shlex.split(line)[1] for line in SESSION]
    assert shown == ["init", "check", "build", "serve", "ask", "stop"]
