"""Directories, links and JSON files that cannot be read."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from checkpoint_files import (
    llama_shapes,
    read,
    whole_checkpoint,
    write_config,
    write_json,
    write_safetensors,
)

from specdeploy.errors import CheckpointError

PARAMETERS = sum(math.prod(shape) for _, shape in llama_shapes().values())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return whole_checkpoint(tmp_path / "model")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1]", "JSON object"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"model_type": "\\ud800"}', "surrogate"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", r"config\.json"),
    ],
    ids=lambda value: value[:20] if isinstance(value, bytes) else "",
)
def test_broken_json_is_one_clear_error(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    "tokenizer",
    [
        {},
        {"model": {"vocab": 3}},
        {"model": {"vocab": {"a": -1}}},
        {"model": {"vocab": {"a": "0"}}},
        {"model": {"vocab": {}}},
        {"model": {"vocab": {"a": 0}}, "added_tokens": [7]},
        {"model": {"vocab": {"a": 0}}, "added_tokens": {"id": 1}},
    ],
    ids=str,
)
def test_a_broken_tokenizer_is_one_clear_error(tokenizer: object, tmp_path: Path) -> None:
    write_json(write_config(tmp_path) / "tokenizer.json", tokenizer)
    with pytest.raises(CheckpointError, match="token"):
        read(tmp_path)


def test_a_file_where_a_directory_should_be_is_told(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a directory"):
        read(folder / "config.json")


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file or directory"):
        read(tmp_path / "gone")


def test_a_name_too_long_for_the_system_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="name too long"):
        read(tmp_path / ("x" * 5000))


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        (None, "empty"),
        ("snapshots", "snapshots"),
        ("adapter_config.json", "LoRA"),
        ("params.json", "Mistral"),
        ("model.gguf", "GGUF"),
        ("notes.txt", "directory that holds"),
    ],
)
def test_a_directory_without_config_json_says_what_it_seems_to_be(
    entry: str | None, hint: str, tmp_path: Path
) -> None:
    if entry:
        (tmp_path / entry).touch()
    with pytest.raises(CheckpointError, match=r"no config\.json") as caught:
        read(tmp_path)
    assert hint in (caught.value.hint or "")


def test_a_config_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    os.truncate(tmp_path / "config.json", 1 << 40)
    with pytest.raises(CheckpointError, match="1,099,511,627,776 bytes"):
        read(tmp_path)


def test_a_directory_named_config_json_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json in .* is a directory"):
        read(tmp_path)


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read(tmp_path)


def hub_cache(root: Path) -> Path:
    """Lay out a Hub cache: blobs, and a snapshot of relative links."""
    revision = "a" * 40
    snapshot = root / "models--org--some-model" / "snapshots" / revision
    blobs = root / "models--org--some-model" / "blobs"
    blobs.mkdir(parents=True)
    write_config(blobs)
    (blobs / "config.json").rename(blobs / "c0ffee")
    write_safetensors(blobs / "beef", llama_shapes())
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/c0ffee")
    (snapshot / "model.safetensors").symlink_to("../../blobs/beef")
    return snapshot


def test_a_linked_snapshot_is_read_with_the_sizes_of_its_targets(tmp_path: Path) -> None:
    spec = read(hub_cache(tmp_path))
    assert spec.name == "org/some-model"
    assert spec.weight_bytes_stored == 2 * PARAMETERS


def test_a_snapshot_is_read_through_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hub_cache(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert read(snapshot.relative_to(tmp_path)).parameters == PARAMETERS


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_dangling_link_says_what_to_mount(name: str, tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path)
    for blob in (tmp_path / "models--org--some-model" / "blobs").iterdir():
        if blob.samefile(snapshot / name):
            blob.unlink()
            break
    with pytest.raises(CheckpointError) as caught:
        read(snapshot)
    assert f"{name} is a broken link to ../../blobs/" in str(caught.value)
    assert "mount the whole models--org--some-model folder" in str(caught.value)


def test_a_dangling_tokenizer_is_no_absent_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").symlink_to("../../blobs/gone")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is a broken link"):
        read(folder)


def test_a_link_to_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to("config.json")
    with pytest.raises(CheckpointError, match="broken link"):
        read(tmp_path)


def test_a_dangling_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to("elsewhere")
    with pytest.raises(CheckpointError, match="broken link to elsewhere"):
        read(tmp_path / "model")


# The first run imports what the second needs: the interpreter's files may be root's alone.
AS_NOBODY = """
import os, sys
from specdeploy.cli import run
place, folder = sys.argv[1:]
assert os.geteuid() or run(["inspect", folder, "-q"]) == 0
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(run(["inspect", folder, "-q"]))
"""


@pytest.mark.parametrize("place", ["", "config.json", "model.safetensors"])
def test_what_may_not_be_read_is_told(place: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        folder = write_config(Path(root) / "model")
        write_safetensors(folder / "model.safetensors", llama_shapes())
        (folder / place).chmod(0o000)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, place, str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        (folder / place).chmod(0o755)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith(f"error: cannot read {folder / place}: permission denied")
