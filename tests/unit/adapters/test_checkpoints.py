"""Reading checkpoint directories, whole and broken."""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from checkpoint_files import (
    FACTS,
    LLAMA,
    POINTER,
    Shapes,
    config_of,
    header_of,
    llama_shapes,
    read,
    write_config,
    write_json,
    write_safetensors,
    write_sharded,
)

from specdeploy.adapters.checkpoints import list_tokenizer_files, list_weight_files
from specdeploy.errors import CheckpointError

PARAMETERS = sum(math.prod(shape) for _, shape in llama_shapes().values())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole checkpoint: config and one weight file."""
    write_config(tmp_path / "model")
    write_safetensors(tmp_path / "model" / "model.safetensors", llama_shapes())
    return tmp_path / "model"


def test_a_directory_with_config_json_alone_is_enough(tmp_path: Path) -> None:
    spec = read(write_config(tmp_path))
    assert (spec.parameters, spec.weight_bytes) == (PARAMETERS, 2 * PARAMETERS)
    assert spec.weight_bytes_stored is None


def test_stored_bytes_are_those_of_the_tensors(folder: Path) -> None:
    spec = read(folder)
    assert spec.parameters == PARAMETERS
    assert spec.weight_bytes_stored == 2 * PARAMETERS


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_sharded(tmp_path, llama_shapes(), shards=3)
    assert read(tmp_path).weight_bytes_stored == 2 * PARAMETERS
    assert len(list_weight_files(tmp_path)) == 3


def test_weights_stored_in_32_bit_are_served_in_the_declared_type(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", llama_shapes(dtype="F32"))
    spec = read(tmp_path)
    assert (spec.weight_bytes_stored, spec.weight_bytes) == (4 * PARAMETERS, 2 * PARAMETERS)


def test_without_a_declared_type_the_stored_one_counts(tmp_path: Path) -> None:
    write_config(tmp_path, torch_dtype=None)
    write_safetensors(tmp_path / "model.safetensors", llama_shapes(dtype="F32"))
    assert read(tmp_path).weight_bytes == 4 * PARAMETERS


def test_a_tied_output_projection_that_is_stored_is_not_served(folder: Path) -> None:
    write_config(folder, tie_word_embeddings=True)
    spec = read(folder)
    assert spec.parameters == PARAMETERS - 50 * 16
    assert spec.weight_bytes == 2 * spec.parameters
    assert spec.weight_bytes_stored == 2 * PARAMETERS


def test_a_vision_tower_is_stored_but_not_counted(tmp_path: Path) -> None:
    nested = {key: value for key, value in LLAMA.items() if key != "architectures"}
    write_config(
        tmp_path,
        {
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "text_config": nested,
            "vision_config": {},
        },
    )
    shapes = {f"language_model.{name}": entry for name, entry in llama_shapes().items()}
    tower: Shapes = {"vision_tower.encoder.layers.0.mlp.fc1.weight": ("BF16", (7, 5))}
    write_safetensors(tmp_path / "model.safetensors", {**shapes, **tower})
    spec = read(tmp_path)
    assert spec.parameters == PARAMETERS
    assert spec.weight_bytes_stored == 2 * (PARAMETERS + 35)


def test_layers_after_the_last_are_mtp_modules(folder: Path) -> None:
    mtp: Shapes = {
        "model.layers.2.embed_tokens.weight": ("BF16", (50, 16)),
        "model.layers.2.eh_proj.weight": ("BF16", (16, 32)),
    }
    write_safetensors(folder / "model.safetensors", {**llama_shapes(), **mtp})
    spec = read(folder)
    assert (spec.parameters, spec.mtp_parameters) == (PARAMETERS, 16 * 32)


def test_rotary_tables_are_no_parameters(folder: Path) -> None:
    table: Shapes = {"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (2,))}
    write_safetensors(folder / "model.safetensors", {**llama_shapes(), **table})
    assert read(folder).parameters == PARAMETERS


def test_tensors_beyond_the_family_count_and_are_told(folder: Path) -> None:
    extra: Shapes = {"model.layers.0.self_attn.q_proj.bias": ("BF16", (16,))}
    write_safetensors(folder / "model.safetensors", {**llama_shapes(), **extra})
    spec = read(folder)
    assert (spec.parameters, spec.weight_bytes) == (PARAMETERS + 16, 2 * (PARAMETERS + 16))
    assert any("+16" in note for note in spec.notes)


def test_8_bit_weights_are_served_as_they_are_stored(tmp_path: Path) -> None:
    write_config(tmp_path, quantization_config={"quant_method": "fp8"})
    shapes = {
        name: ("F8_E4M3" if "proj" in name else dtype, shape)
        for name, (dtype, shape) in llama_shapes().items()
    }
    scales: Shapes = {"model.layers.0.mlp.up_proj.weight_scale_inv": ("F32", (3,))}
    write_safetensors(tmp_path / "model.safetensors", {**shapes, **scales})
    spec = read(tmp_path)
    assert spec.parameters == PARAMETERS
    assert spec.weight_bytes == spec.weight_bytes_stored


def test_the_head_of_an_eagle3_checkpoint_is_told_from_its_tensors(tmp_path: Path) -> None:
    config = {**LLAMA, "num_hidden_layers": 1, "draft_vocab_size": 20}
    write_config(tmp_path, config)
    shapes = {
        name: entry
        for name, entry in llama_shapes({**config, "vocab_size": 20}).items()
        if "q_proj" not in name and "k_proj" not in name and "v_proj" not in name
    }
    layer = "model.layers.0"
    shapes |= {
        "model.embed_tokens.weight": ("BF16", (50, 16)),
        "fc.weight": ("BF16", (16, 48)),
        f"{layer}.hidden_norm.weight": ("BF16", (16,)),
        f"{layer}.self_attn.q_proj.weight": ("BF16", (16, 32)),
        f"{layer}.self_attn.k_proj.weight": ("BF16", (8, 32)),
        f"{layer}.self_attn.v_proj.weight": ("BF16", (8, 32)),
        "d2t": ("I64", (20,)),
        "t2d": ("BOOL", (50,)),
    }
    without = read(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", shapes)
    spec = read(tmp_path)
    assert spec.head is not None
    assert spec.head.has_embedding
    assert spec.head.has_lm_head
    assert spec.head.has_draft_to_target_map
    assert spec.head.has_target_to_draft_map
    assert spec.head.fusion_input_size == 48
    assert spec.parameters == without.parameters


def test_a_head_published_under_its_targets_class_is_known_by_its_projection(
    tmp_path: Path,
) -> None:
    config = {**LLAMA, "num_hidden_layers": 1}
    write_config(tmp_path, config)
    shapes = {
        name.removeprefix("model."): entry
        for name, entry in llama_shapes(config).items()
        if name not in ("lm_head.weight", "model.norm.weight")
        and not name.endswith("input_layernorm.weight")
    }
    fusion: Shapes = {"fc.weight": ("BF16", (16, 32)), "fc.bias": ("BF16", (16,))}
    write_safetensors(tmp_path / "model.safetensors", {**shapes, **fusion})
    spec = read(tmp_path)
    assert spec.head is not None
    assert (spec.head.kind, spec.head.has_lm_head) == ("eagle", False)


def test_a_gpt2_feed_forward_is_no_draft_heads_projection(tmp_path: Path) -> None:
    gpt2 = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 8,
        "n_head": 2,
        "n_layer": 1,
        "n_positions": 16,
        "vocab_size": 20,
        "torch_dtype": "float32",
    }
    write_config(tmp_path, gpt2)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "wte.weight": ("F32", (20, 8)),
        "wpe.weight": ("F32", (16, 8)),
        "h.0.attn.bias": ("F32", (1, 1, 16, 16)),
        "h.0.attn.c_attn.weight": ("F32", (8, 24)),
        "h.0.attn.c_attn.bias": ("F32", (24,)),
        "h.0.attn.c_proj.weight": ("F32", (8, 8)),
        "h.0.attn.c_proj.bias": ("F32", (8,)),
        "h.0.mlp.c_fc.weight": ("F32", (8, 32)),
        "h.0.mlp.c_fc.bias": ("F32", (32,)),
        "h.0.mlp.c_proj.weight": ("F32", (32, 8)),
        "h.0.mlp.c_proj.bias": ("F32", (8,)),
    }
    for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        shapes |= {f"{norm}.weight": ("F32", (8,)), f"{norm}.bias": ("F32", (8,))}
    write_safetensors(tmp_path / "model.safetensors", shapes)
    spec = read(tmp_path)
    assert spec.head is None
    assert spec.notes == []


def test_pickle_weights_are_sized_and_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (os.mkdir, (str(tmp_path / "opened"),))

    write_config(tmp_path / "model")
    content = pickle.dumps(Trap()) + bytes(2000)
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(content)
    spec = read(tmp_path / "model")
    assert spec.weight_bytes_stored == len(content)
    assert any("never opened" in note for note in spec.notes)
    assert not (tmp_path / "opened").exists()


# Vocabulary and ids.


def test_the_tokenizers_size_is_its_base_plus_what_was_added(tmp_path: Path) -> None:
    write_config(tmp_path, vocab_size=128_256)
    base = {f"t{i}": i for i in range(128_000)}
    added = [{"id": i, "content": f"<{i}>"} for i in range(128_000, 128_256)]
    write_json(tmp_path / "tokenizer.json", {"model": {"vocab": base}, "added_tokens": added})
    sizes = read(tmp_path).vocabulary
    assert sizes is not None
    assert (sizes.tokenizer_base, sizes.tokenizer_added) == (128_000, 256)
    assert (sizes.tokenizer_size, sizes.config_rows, sizes.unused_rows) == (128_256, 128_256, 0)


def test_padding_rows_are_those_above_the_highest_id(tmp_path: Path) -> None:
    write_config(tmp_path, vocab_size=151_936)
    base = {f"t{i}": i for i in range(151_643)}
    added = [{"id": i, "content": f"<{i}>"} for i in range(151_643, 151_646)]
    write_json(tmp_path / "tokenizer.json", {"model": {"vocab": base}, "added_tokens": added})
    sizes = read(tmp_path).vocabulary
    assert sizes is not None
    assert (sizes.highest_id, sizes.unused_rows) == (151_645, 290)


def test_an_added_token_of_the_base_vocabulary_counts_once(tmp_path: Path) -> None:
    tokenizer = {"model": {"vocab": [["<s>", 0.0], ["a", -1.0]]}, "added_tokens": [{"id": 0}]}
    write_json(write_config(tmp_path) / "tokenizer.json", tokenizer)
    sizes = read(tmp_path).vocabulary
    assert sizes is not None
    assert (sizes.tokenizer_base, sizes.tokenizer_added) == (2, 0)


def test_vocab_json_and_added_tokens_json_stand_in_for_tokenizer_json(tmp_path: Path) -> None:
    write_json(write_config(tmp_path) / "vocab.json", {"a": 0, "b": 1})
    write_json(tmp_path / "added_tokens.json", {"<x>": 7})
    sizes = read(tmp_path).vocabulary
    assert sizes is not None
    assert (sizes.tokenizer_size, sizes.highest_id) == (3, 7)


def test_the_whole_list_of_end_ids_is_kept(tmp_path: Path) -> None:
    write_config(tmp_path, bos_token_id=128000, eos_token_id=128001)
    ids = [128001, 128008, 128009]
    write_json(tmp_path / "generation_config.json", {"eos_token_id": ids})
    found = read(tmp_path).special_ids
    assert (found.bos, found.eos, found.generation_eos) == (128000, [128001], ids)


# Broken weight files.


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


def test_mistrals_own_copy_of_the_weights_is_not_counted_twice(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    write_safetensors(folder / "consolidated.safetensors", llama_shapes())
    assert read(folder).weight_bytes_stored == 2 * PARAMETERS


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


# Broken JSON.


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


# Paths.


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


def listing(root: Path) -> list[tuple[str, int]]:
    return sorted((str(p), p.lstat().st_mtime_ns) for p in [root, *root.rglob("*")])


def test_reading_writes_nothing_and_needs_no_write_permission(folder: Path) -> None:
    before = listing(folder)
    folder.chmod(0o555)
    try:
        read(folder)
    finally:
        folder.chmod(0o755)
    assert listing(folder) == before


def test_tokenizer_files_are_listed_in_a_fixed_order(folder: Path) -> None:
    for name in ("tokenizer_config.json", "tokenizer.json", "README.md"):
        (folder / name).write_text("{}")
    names = [path.name for path in list_tokenizer_files(folder)]
    assert names == ["tokenizer.json", "tokenizer_config.json"]
