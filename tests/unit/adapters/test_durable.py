"""Directories that exist whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from specdeploy.adapters.durable import replace_file, replace_link, staged_directory, write_record
from specdeploy.core.repository import ModelRepository
from specdeploy.errors import ConfigError

RECORD = ModelRepository(
    runtime="reference",
    shape="engine",
    method="ngram",
    models=["m"],
    entry_model="m",
    streaming=True,
    draft_length=1,
    plan_digest="0",
    files=[],
)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_directory_appears_only_when_the_block_has_ended(tmp_path: Path) -> None:
    destination = tmp_path / "engines/abc/target"
    with staged_directory(destination) as staging:
        (staging / "weights").write_text("w")
        assert not destination.exists()
        assert staging.parent == destination.parent
    assert names(destination) == ["weights"]
    assert names(destination.parent) == ["target"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failed_block_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    def build() -> None:
        with staged_directory(tmp_path / "target") as staging:
            (staging / "weights").write_text("half")
            raise failure

    with pytest.raises(failure):
        build()
    assert names(tmp_path) == []


def test_a_file_is_replaced_and_its_folder_made(tmp_path: Path) -> None:
    file = tmp_path / "run/record.json"
    for text in ("first", "the second, é"):
        replace_file(file, text)
        assert file.read_text(encoding="utf-8") == text
    assert names(file.parent) == ["record.json"]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(tmp_path / "record.json", "first")

    def full(descriptor: int) -> None:
        del descriptor
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        replace_file(tmp_path / "record.json", "second")
    assert (tmp_path / "record.json").read_text() == "first"
    assert names(tmp_path) == ["record.json"]


def test_a_damaged_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    destination = tmp_path / "target"
    destination.mkdir()
    (destination / "old").write_text("")
    with staged_directory(destination) as staging:
        (staging / "new").write_text("")
    assert names(destination) == ["new"]
    assert names(tmp_path) == ["target"]


def test_every_file_is_on_the_disk_before_the_record_and_the_record_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, rename = os.fsync, Path.rename

    def recording_sync(descriptor: int) -> None:
        events.append("sync " + Path(f"/proc/self/fd/{descriptor}").readlink().name[:7])
        sync(descriptor)

    def recording_rename(self: Path, target: Path) -> Path:
        events.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", recording_sync)
    monkeypatch.setattr(Path, "rename", recording_rename)
    with staged_directory(tmp_path / "d" / "target") as staging:
        (staging / "1").mkdir()
        (staging / "1" / "weights").write_text("")
        write_record(staging, "manifest.json", RECORD)
    weights, record, renamed = (events.index(e) for e in ("sync weights", "sync manifes", "rename"))
    assert weights < record < renamed
    assert events[renamed + 1 :] == ["sync d", f"sync {tmp_path.name[:7]}"]


def test_the_record_is_the_json_of_the_document(tmp_path: Path) -> None:
    write_record(tmp_path, "repository.json", RECORD)
    written = json.loads((tmp_path / "repository.json").read_text())
    assert ModelRepository.model_validate(written) == RECORD


def test_a_record_never_overwrites_a_file_that_the_command_wrote(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("the tool's own")
    with pytest.raises(ConfigError, match=r"manifest\.json: File exists"):
        write_record(tmp_path, "manifest.json", RECORD)


def test_a_full_disk_is_told_with_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)

    def build() -> None:
        with staged_directory(tmp_path / "target") as staging:
            write_record(staging, "manifest.json", RECORD)

    with pytest.raises(ConfigError, match="No space left on device") as caught:
        build()
    assert "are free in" in str(caught.value.hint)
    assert names(tmp_path) == []


def test_a_staging_directory_gets_the_permissions_of_the_umask(tmp_path: Path) -> None:
    with staged_directory(tmp_path / "target") as staging:
        plain = tmp_path / "plain"
        plain.mkdir()
        assert staging.stat().st_mode == plain.stat().st_mode


def test_a_link_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("old", "new"):
        (tmp_path / "repositories" / name).mkdir(parents=True)
    link = tmp_path / "repository"
    replace_link(link, tmp_path / "repositories/old")
    seen: list[str] = []
    original = Path.replace

    def watching(self: Path, target: Path) -> Path:
        seen.append(link.resolve().name)
        return original(self, target)

    monkeypatch.setattr(Path, "replace", watching)
    replace_link(link, tmp_path / "repositories/new")
    assert seen == ["old"]
    assert link.resolve().name == "new"
    assert names(tmp_path) == ["repositories", "repository"]


def test_a_link_survives_a_move_of_the_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / "here"
    (workspace / "repositories/a").mkdir(parents=True)
    replace_link(workspace / "repository", workspace / "repositories/a")
    moved = workspace.rename(tmp_path / "there")
    assert (moved / "repository").is_dir()


def test_a_directory_that_is_no_link_of_ours_is_left_alone(tmp_path: Path) -> None:
    link = tmp_path / "repository"
    link.mkdir()
    (link / "precious").write_text("")
    with pytest.raises(ConfigError, match="is left alone"):
        replace_link(link, tmp_path)
    assert names(link) == ["precious"]


def test_a_name_below_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match="Not a directory"),
        staged_directory(tmp_path / "file" / "target"),
    ):
        pass
