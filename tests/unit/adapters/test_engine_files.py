"""What is read of a built engine and of the log of its build."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdeploy.adapters.artifact_files import LocalArtifacts
from specdeploy.adapters.hashing import FileHasher
from specdeploy.adapters.workspace import LOG_END_BYTES, Workspace
from specdeploy.errors import ArtifactError
from specdeploy.events import Reporter


def test_an_engines_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"version": "1.2.1"}')
    assert LocalArtifacts(FileHasher()).read_config(tmp_path) == {"version": "1.2.1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "No such file"), ("{", "is not JSON"), ("[]", "holds no JSON object")],
)
def test_a_config_that_cannot_be_read_is_an_artifact_that_is_not_whole(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ArtifactError, match=message):
        LocalArtifacts(FileHasher()).read_config(tmp_path)


def test_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("first\n" + "x" * LOG_END_BYTES + "\nlast\n")
    text = Workspace(tmp_path, reporter=Reporter()).read_log(log)
    assert text.endswith("last\n")
    assert len(text) == LOG_END_BYTES


def test_a_log_that_is_gone_says_nothing(tmp_path: Path) -> None:
    assert Workspace(tmp_path, reporter=Reporter()).read_log(tmp_path / "gone.log") == ""
