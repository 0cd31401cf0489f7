"""Hashing: content decides, and a file that did not change is not read again."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from tiny_checkpoints import write_checkpoint

from specdeploy.adapters import hashing
from specdeploy.adapters.hashing import FileHasher, checkpoint_files
from specdeploy.errors import ArtifactError, CheckpointError


def later() -> float:
    """A clock by which every file was written long ago."""
    return time.time() + 60


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every digest that was computed by reading a file."""
    computed: list[str] = []
    original = hashing.sha256_of

    def counting(read: object) -> str:
        digest = original(read)  # type: ignore[arg-type]
        computed.append(digest)
        return digest

    monkeypatch.setattr(hashing, "sha256_of", counting)
    return computed


def digest_of(hasher: FileHasher, folder: Path) -> str:
    (entry,) = hasher.entries(folder, without="-")
    return entry.sha256


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_bytes(b"content")
    return tmp_path / "data"


def test_an_entry_has_the_size_and_sha256_of_the_file(folder: Path) -> None:
    (entry,) = FileHasher().entries(folder, without="-")
    assert (entry.path, entry.size_bytes) == ("file", 7)
    assert entry.sha256 == hashlib.sha256(b"content").hexdigest()


def test_an_unchanged_file_is_read_once_over_several_runs(
    folder: Path, tmp_path: Path, reads: list[str]
) -> None:
    for _ in range(2):
        hasher = FileHasher(tmp_path / "memory.json", clock=later)
        first = digest_of(hasher, folder)
        assert digest_of(hasher, folder) == first
        hasher.save()
    assert len(reads) == 1


def test_a_directory_that_was_moved_is_not_read_again(
    folder: Path, tmp_path: Path, reads: list[str]
) -> None:
    hasher = FileHasher(clock=later)
    digest_of(hasher, folder)
    digest_of(hasher, folder.rename(tmp_path / "moved"))
    assert len(reads) == 1


def test_an_edit_that_keeps_size_and_date_is_seen(folder: Path) -> None:
    hasher = FileHasher(clock=later)
    before = digest_of(hasher, folder)
    dates = (folder / "file").stat()
    (folder / "file").write_bytes(b"CONTENT")
    os.utime(folder / "file", ns=(dates.st_atime_ns, dates.st_mtime_ns))
    assert digest_of(hasher, folder) != before


def test_a_file_written_just_now_is_not_remembered(folder: Path, reads: list[str]) -> None:
    hasher = FileHasher()
    digest_of(hasher, folder)
    digest_of(hasher, folder)
    assert len(reads) == 2


@pytest.mark.parametrize("garbage", ["", "[]", "{", '{"a": 1}', "[" * 100_000])
def test_a_damaged_memory_is_ignored(folder: Path, tmp_path: Path, garbage: str) -> None:
    (tmp_path / "memory.json").write_text(garbage)
    hasher = FileHasher(tmp_path / "memory.json")
    assert digest_of(hasher, folder) == hashlib.sha256(b"content").hexdigest()


def test_a_memory_that_cannot_be_written_is_no_failure(folder: Path, tmp_path: Path) -> None:
    hasher = FileHasher(tmp_path / "data/file/memory.json", clock=later)
    digest_of(hasher, folder)
    hasher.save()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data"]


def test_a_file_that_changes_while_it_is_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddling(read: object) -> str:
        del read
        (folder / "file").write_bytes(b"other content")
        return ""

    monkeypatch.setattr(hashing, "sha256_of", meddling)
    with pytest.raises(ArtifactError, match="changed while it was read"):
        digest_of(FileHasher(), folder)


def test_a_fifo_is_refused_and_not_waited_for(folder: Path) -> None:
    (folder / "file").unlink()
    os.mkfifo(folder / "file")
    with pytest.raises(OSError, match="not a regular file"):
        digest_of(FileHasher(), folder)


def test_the_inputs_are_what_a_converter_reads(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "c", shards=2)
    (source / "README.md").write_text("x")
    (source / "old.safetensors").write_text("a shard that the index does not name")
    names = [i.name for i in FileHasher().checkpoint_inputs(source)]
    assert names == [
        "config.json",
        "generation_config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_links_of_a_download_cache_are_followed_and_kept_as_names(tmp_path: Path) -> None:
    blobs = write_checkpoint(tmp_path / "blobs")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(blob)
    linked = FileHasher().checkpoint_inputs(snapshot)
    plain = FileHasher().checkpoint_inputs(blobs)
    assert [i.path for i in linked] == [str(snapshot / i.name) for i in plain]
    assert [i.sha256 for i in linked] == [i.sha256 for i in plain]


def test_a_checkpoint_without_config_or_directory_is_refused(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "c")
    (source / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        checkpoint_files(source)
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a directory"):
        checkpoint_files(source / "tokenizer.json")
