"""Families that are not known: planned from tensor headers, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_files import (
    LLAMA,
    config_of,
    facts_of,
    kv_bytes,
    llama_shapes,
    published,
    read,
    spec_of,
    write_config,
    write_safetensors,
)

from specdeploy.errors import CheckpointError

UNKNOWN: dict[str, object] = {"architectures": ["OddForCausalLM"], "model_type": "odd"}


def test_an_unknown_family_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"OddForCausalLM.*model_type odd"):
        spec_of(tmp_path, {**LLAMA, **UNKNOWN})


def test_a_derived_class_of_a_known_type_is_an_unknown_family(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="LlamaForRewardModel"):
        spec_of(tmp_path, architectures=["LlamaForRewardModel"])


def test_an_unknown_family_is_planned_from_its_tensor_headers(tmp_path: Path) -> None:
    known = spec_of(tmp_path / "known")
    write_safetensors(tmp_path / "known" / "model.safetensors", llama_shapes())
    write_config(tmp_path / "known", {**LLAMA, **UNKNOWN})
    spec = read(tmp_path / "known")
    assert spec.parameters == known.parameters
    assert kv_bytes(spec) == kv_bytes(known)
    assert spec.weight_bytes == 2 * known.parameters
    assert not spec.known_family


@pytest.mark.parametrize(
    "odd",
    [
        {"sliding_window": 8},
        {"num_key_value_heads": 3},
        {"head_dim": 8},
        {"compress_ratios": [4, 4]},
        {"num_kv_shared_layers": 1},
        {"layer_types": ["full_attention", "chunked_attention"]},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_an_unknown_family_with_an_unclear_cache_is_refused_whatever_its_headers(
    odd: dict[str, object], tmp_path: Path
) -> None:
    write_config(tmp_path, {**LLAMA, **UNKNOWN, **odd})
    write_safetensors(tmp_path / "model.safetensors", llama_shapes())
    with pytest.raises(CheckpointError, match="KV layout not known for this architecture"):
        read(tmp_path)


@pytest.mark.parametrize(
    "extra",
    [
        "model.layers.0.self_attn.A_log",
        "model.layers.1.self_attn.k_conv1d.weight",
        "model.layers.1.cross_attn.k_proj.weight",
        "model.layers.1.other.k_proj.weight",
    ],
)
def test_an_unknown_family_whose_layers_keep_something_else_is_refused(
    extra: str, tmp_path: Path
) -> None:
    write_config(tmp_path, {**LLAMA, **UNKNOWN})
    shapes = {**llama_shapes(), extra: ("BF16", (8, 16))}
    write_safetensors(tmp_path / "model.safetensors", shapes)
    with pytest.raises(CheckpointError, match="KV layout not known for this architecture"):
        read(tmp_path)


def test_an_unknown_family_without_key_projections_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path, {**LLAMA, **UNKNOWN})
    shapes = {k: v for k, v in llama_shapes().items() if "layers.1.self_attn.k_proj" not in k}
    write_safetensors(tmp_path / "model.safetensors", shapes)
    with pytest.raises(CheckpointError, match="no k_proj and v_proj"):
        read(tmp_path)


def test_an_unknown_latent_family_keeps_what_its_projection_gives(tmp_path: Path) -> None:
    write_config(tmp_path, {**LLAMA, **UNKNOWN})
    shapes = {
        name.replace("k_proj", "kv_a_proj_with_mqa"): entry
        for name, entry in llama_shapes().items()
        if "v_proj" not in name
    }
    write_safetensors(tmp_path / "model.safetensors", shapes)
    assert kv_bytes(read(tmp_path), tp=4)[0] == 2 * 8 * 2


def test_an_unknown_hybrid_says_by_layer_types_which_layers_keep_keys(tmp_path: Path) -> None:
    kinds = ["linear_attention", "sliding_attention"]
    write_config(tmp_path, {**LLAMA, **UNKNOWN, "layer_types": kinds, "sliding_window": 8})
    write_safetensors(tmp_path / "model.safetensors", llama_shapes())
    assert kv_bytes(read(tmp_path)) == (2 * 2 * 4 * 2, 0)


def test_an_unknown_model_without_any_cache_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path, {**LLAMA, **UNKNOWN, "layer_types": ["mamba", "mamba"]})
    write_safetensors(tmp_path / "model.safetensors", llama_shapes())
    with pytest.raises(CheckpointError, match="no layer keeps keys and values"):
        read(tmp_path)


def test_packed_weights_of_an_unknown_family_cannot_be_counted(tmp_path: Path) -> None:
    write_config(tmp_path, {**LLAMA, **UNKNOWN})
    write_safetensors(tmp_path / "model.safetensors", llama_shapes(dtype="U8"))
    with pytest.raises(CheckpointError, match="packed weights cannot be counted"):
        read(tmp_path)


def test_a_draft_head_of_an_unknown_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="OddForCausalLMEagle3"):
        spec_of(tmp_path, model_type="odd", architectures=["OddForCausalLMEagle3"])


def test_an_eagle3_head_with_latent_attention_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="latent attention"):
        published(
            "deepseek-ai/DeepSeek-V3", tmp_path, architectures=["DeepseekV3ForCausalLMEagle3"]
        )


@pytest.mark.parametrize("model_type", ["deepseek_v3", "deepseek_v4", "llama"])
def test_latent_attention_under_other_names_is_refused(model_type: str, tmp_path: Path) -> None:
    config = config_of(facts_of("deepseek-ai/DeepSeek-V3"))
    del config["kv_lora_rank"]
    architecture = {"llama": "LlamaForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"}
    config |= {
        "model_type": model_type,
        "architectures": [architecture.get(model_type, "DeepseekV4ForCausalLM")],
        "o_lora_rank": 1024,
        "compress_ratios": [4] * 61,
        "num_key_value_heads": 1,
    }
    with pytest.raises(CheckpointError, match="KV layout not known for this architecture"):
        spec_of(tmp_path, config)
