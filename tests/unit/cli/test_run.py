"""What no command can do about: a full disk behind stdout, no folder to be in, odd names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specdeploy import cli

PROGRAM = (sys.executable, "-m", "specdeploy")


def test_an_output_that_cannot_be_written_is_one_clear_error() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, "schema"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr == b"error: cannot write to standard output: No space left on device\n"


def test_a_folder_that_was_removed_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    status = cli.run(["config"])
    monkeypatch.chdir(tmp_path)
    assert status == 2
    assert capsys.readouterr().err.startswith("error: the current folder cannot be used: ")


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "--startup-timeout"],
        ["build", "--lock-timeout"],
        ["ask", "hello", "--url", "127.0.0.1:1", "--timeout"],
    ],
)
@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_a_time_limit_that_is_none_is_a_usage_error(
    words: list[str], seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*words, seconds]) == 2
    assert f"Invalid value for '{words[-1]}'" in capsys.readouterr().err


def test_a_name_that_is_no_text_is_an_escape_of_the_json_document(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    done = subprocess.run(
        [*PROGRAM, "init", "--target", "owner/name", "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["file"] == str(folder / "specdeploy.yaml")
