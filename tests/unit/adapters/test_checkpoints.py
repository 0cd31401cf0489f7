"""Reading whole checkpoint directories."""

from __future__ import annotations

import math
import os
import pickle
from pathlib import Path

import pytest
from checkpoint_files import (
    LLAMA,
    Shapes,
    llama_shapes,
    read,
    whole_checkpoint,
    write_config,
    write_json,
    write_safetensors,
    write_sharded,
)

from specdeploy.adapters.checkpoints import list_tokenizer_files, list_weight_files

PARAMETERS = sum(math.prod(shape) for _, shape in llama_shapes().values())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return whole_checkpoint(tmp_path / "model")


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


def test_mistrals_own_copy_of_the_weights_is_not_counted_twice(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    write_safetensors(folder / "consolidated.safetensors", llama_shapes())
    assert read(folder).weight_bytes_stored == 2 * PARAMETERS


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
