"""Weight files that are missing, cut short, or of another model."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from checkpoint_files import (
    FACTS,
    POINTER,
    config_of,
    header_of,
    llama_shapes,
    read,
    whole_checkpoint,
    write_config,
    write_json,
    write_safetensors,
    write_sharded,
)

from specdeploy.errors import CheckpointError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return whole_checkpoint(tmp_path / "model")


def test_lfs_pointers_are_named_with_their_size_and_what_is_missing(tmp_path: Path) -> None:
    config = config_of(next(f for f in FACTS if f["name"] == "meta-llama/Llama-3.1-8B"))
    write_config(tmp_path, config)
    names = [f"model-{i:05}-of-00004.safetensors" for i in range(1, 5)]
    for name in names:
        (tmp_path / name).write_bytes(POINTER)
    index = {f"t{i}": name for i, name in enumerate(names)}
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": index})
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path)
    message = str(caught.value)
    assert len(POINTER) == 135
    assert "model-00001-of-00004.safetensors is a Git LFS pointer (135 bytes)" in message
    assert "4,976,698,672 bytes" in message
    assert "about 16.06 GB in total for 8,030,261,248 bf16 parameters" in message


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_a_json_file_that_is_an_lfs_pointer_is_told(name: str, folder: Path) -> None:
    (folder / name).write_bytes(POINTER)
    with pytest.raises(CheckpointError, match=f"{name} is a Git LFS pointer"):
        read(folder)


def test_pickle_weights_that_are_lfs_pointers_are_told(tmp_path: Path) -> None:
    (write_config(tmp_path) / "pytorch_model.bin").write_bytes(POINTER)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is a Git LFS pointer"):
        read(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_sharded(tmp_path, llama_shapes(), shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"1 of 3 weight files.*model-00002-of-00003"):
        read(tmp_path)


def test_a_missing_shard_shows_without_an_index_too(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_sharded(tmp_path, llama_shapes(), shards=3)
    (tmp_path / "model.safetensors.index.json").unlink()
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match="2 of 3 weight files are there"):
        read(tmp_path)


def test_an_index_without_a_weight_map_is_told(tmp_path: Path) -> None:
    write_json(write_config(tmp_path) / "model.safetensors.index.json", {"metadata": {}})
    with pytest.raises(CheckpointError, match="no weight_map"):
        read(tmp_path)


def test_shards_of_two_downloads_are_told(tmp_path: Path) -> None:
    write_config(tmp_path)
    for name in ("model-00001-of-00001.safetensors", "model-00001-of-00002.safetensors"):
        write_safetensors(tmp_path / name, llama_shapes())
    with pytest.raises(CheckpointError, match="two different sets"):
        read(tmp_path)


def test_a_tensor_in_two_files_is_told(tmp_path: Path) -> None:
    write_config(tmp_path)
    for name in ("a.safetensors", "b.safetensors"):
        write_safetensors(tmp_path / name, llama_shapes())
    with pytest.raises(CheckpointError, match="hold the same tensor"):
        read(tmp_path)


def test_an_index_that_does_not_match_its_shards_is_stale(tmp_path: Path) -> None:
    write_config(tmp_path)
    weight_map = write_sharded(tmp_path, llama_shapes())
    weight_map["model.layers.0.mlp.old_proj.weight"] = next(iter(weight_map.values()))
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": weight_map})
    with pytest.raises(CheckpointError, match=r"stale.*old_proj"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/hosts", "a/b.safetensors", "", 3])
def test_an_index_may_not_name_files_elsewhere(name: object, tmp_path: Path) -> None:
    write_config(tmp_path)
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": {"t": name}})
    with pytest.raises(CheckpointError, match="outside the directory"):
        read(tmp_path)


def test_a_truncated_shard_is_told(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is truncated"):
        read(folder)


def test_a_file_longer_than_its_tensors_is_told(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size + 1)
    with pytest.raises(CheckpointError, match="malformed"):
        read(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"\0" * 7, "truncated"),
        (struct.pack("<Q", 10**12) + b"{}", "announces a header of 1,000,000,000,000 bytes"),
        (struct.pack("<Q", 500) + b"{}", "truncated"),
        (struct.pack("<Q", 2) + b"[]", "JSON object"),
        (struct.pack("<Q", 3) + b"{\xff}", "UTF-8"),
        (struct.pack("<Q", 9) + b'{"a":NaN}', "not valid JSON"),
    ],
)
def test_what_is_no_safetensors_file_is_told(content: bytes, message: str, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read(folder)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "Q9", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
    ],
    ids=str,
)
def test_a_malformed_header_entry_names_its_tensor(entry: object, folder: Path) -> None:
    header = json.dumps({"odd.weight": entry}).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(4)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"odd\.weight"):
        read(folder)


def test_a_tensor_named_twice_in_one_header_is_told(folder: Path) -> None:
    header, _ = header_of({"a": ("U8", (1,))})
    text = json.dumps(header)
    doubled = f"{text[:-1]},{text[1:]}".encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(doubled)) + doubled + b"\0")
    with pytest.raises(CheckpointError, match="twice"):
        read(folder)


def test_weights_of_fewer_layers_than_the_config_are_told(folder: Path) -> None:
    write_config(folder, num_hidden_layers=3)
    with pytest.raises(CheckpointError, match=r"no tensors of 1 of 3 layers \(first: 2\)"):
        read(folder)


def test_an_embedding_of_another_vocabulary_is_told(folder: Path) -> None:
    write_config(folder, vocab_size=64)
    with pytest.raises(CheckpointError, match=r"50 rows.*vocab_size 64"):
        read(folder)


def test_a_missing_output_projection_is_told(folder: Path) -> None:
    shapes = llama_shapes()
    del shapes["lm_head.weight"]
    write_safetensors(folder / "model.safetensors", shapes)
    with pytest.raises(CheckpointError, match=r"hold .* of the .* parameters"):
        read(folder)
