"""Sizes of published models, from the facts of their config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import (
    FACTS,
    LLAMA,
    config_of,
    facts_of,
    llama_shapes,
    read,
    spec_of,
    write_config,
    write_safetensors,
)

from specdeploy.core.inspection import inspect_model
from specdeploy.core.models import ModelSpec
from specdeploy.errors import CheckpointError


def kv_bytes(spec: ModelSpec, *, tp: int = 1, kv_dtype: str = "auto") -> tuple[int, int]:
    found = inspect_model(spec, path="x", tp=tp, kv_dtype=kv_dtype)
    return found.kv_bytes_per_token, found.kv_bytes_per_token_full


def published(name: str, folder: Path, **changes: object) -> ModelSpec:
    return spec_of(folder, config_of(facts_of(name)), **changes)


@pytest.mark.parametrize("facts", FACTS, ids=[facts["name"] for facts in FACTS])
def test_a_published_model_has_its_published_sizes(facts: dict[str, Any], tmp_path: Path) -> None:
    spec = spec_of(tmp_path, config_of(facts))
    if facts["computed_parameter_count"] is not None:
        assert spec.parameters == facts["computed_parameter_count"]
    assert kv_bytes(spec, kv_dtype="fp16")[0] == facts["kv_bytes_per_token_16bit_tp1"]


def test_all_forty_published_models_are_there() -> None:
    assert len(FACTS) == 40


@pytest.mark.parametrize(
    ("name", "beyond"),
    [
        ("openai/gpt-oss-20b", 24_576),
        ("openai/gpt-oss-120b", 36_864),
        ("google/gemma-3-1b-it", 4 * 1024),
        ("google/gemma-2-9b", 172_032),
        ("mistralai/Mistral-7B-v0.1", 0),
        ("mistralai/Mistral-7B-v0.3", 131_072),
        ("Qwen/Qwen2.5-3B", 36_864),
    ],
)
def test_beyond_the_window_only_full_attention_layers_grow(
    name: str, beyond: int, tmp_path: Path
) -> None:
    assert kv_bytes(published(name, tmp_path))[1] == beyond


def test_sliding_layers_count_while_inside_their_window(tmp_path: Path) -> None:
    # 5.38 GiB were 78,384 tokens in the log of a gpt-oss-120b server (input rounded).
    per_token, _ = kv_bytes(published("openai/gpt-oss-120b", tmp_path))
    assert per_token == 73_728
    assert abs(5.38 * 2**30 / per_token / 78_384 - 1) < 0.001


def test_a_window_as_long_as_the_context_is_no_window(tmp_path: Path) -> None:
    spec = published("mistralai/Mistral-7B-v0.1", tmp_path, sliding_window=32768)
    assert kv_bytes(spec) == (131_072, 131_072)


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("Qwen/Qwen3-30B-A3B", 3_353_032_704),
        ("mistralai/Mixtral-8x7B-v0.1", 12_879_925_248),
        ("Qwen/Qwen3-8B", 8_190_735_360),
    ],
)
def test_active_parameters_leave_out_experts_that_a_token_does_not_use(
    name: str, active: int, tmp_path: Path
) -> None:
    assert published(name, tmp_path).active_parameters == active


def test_the_mtp_module_is_counted_apart(tmp_path: Path) -> None:
    spec = published("deepseek-ai/DeepSeek-V3", tmp_path)
    assert (spec.parameters, spec.mtp_parameters) == (671_026_419_200, 11_610_068_224)


@pytest.mark.parametrize("tp", [1, 2, 8, 16])
def test_latent_attention_is_not_divided_by_tp(tp: int, tmp_path: Path) -> None:
    assert kv_bytes(published("deepseek-ai/DeepSeek-V3", tmp_path), tp=tp)[0] == 70_272


@pytest.mark.parametrize(
    ("name", "right", "with_hidden_over_heads"),
    [
        ("Qwen/Qwen3-4B", 147_456, 92_160),
        ("Qwen/Qwen3-32B", 262_144, 163_840),
        ("Qwen/Qwen3-30B-A3B", 98_304, 49_152),
    ],
)
def test_a_stated_head_dim_wins_over_hidden_size_by_heads(
    name: str, right: int, with_hidden_over_heads: int, tmp_path: Path
) -> None:
    stated = kv_bytes(published(name, tmp_path / "stated"))[0]
    null = kv_bytes(published(name, tmp_path / "null", head_dim=None))[0]
    assert (stated, null) == (right, with_hidden_over_heads)


def test_qwen3_0_6b_keeps_114688_bytes(tmp_path: Path) -> None:
    small = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 3072}
    assert kv_bytes(published("Qwen/Qwen3-1.7B", tmp_path, **small))[0] == 114_688


GEMMA2_27B = {
    "hidden_size": 4608,
    "num_hidden_layers": 46,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "intermediate_size": 36864,
}


@pytest.mark.parametrize(
    ("tie", "parameters"), [({}, 27_227_128_320), ({"tie_word_embeddings": False}, 28_406_776_320)]
)
def test_gemma_2_ties_its_embedding_unless_the_file_says_otherwise(
    tie: dict[str, object], parameters: int, tmp_path: Path
) -> None:
    spec = published("google/gemma-2-9b", tmp_path, **GEMMA2_27B, **tie)
    assert spec.parameters == parameters


QWEN3_5_27B: dict[str, object] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "dtype": "bfloat16",
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
    },
    "vision_config": {"depth": 27},
}


def test_a_hybrid_keeps_keys_and_values_in_every_fourth_layer_only(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, QWEN3_5_27B)
    assert kv_bytes(spec) == (65_536, 65_536)
    assert spec.state_bytes_per_sequence > 0


def test_a_hybrid_without_layer_types_follows_its_interval(tmp_path: Path) -> None:
    text = QWEN3_5_27B["text_config"]
    assert isinstance(text, dict)
    text = {key: value for key, value in text.items() if key != "layer_types"}
    spec = spec_of(tmp_path, QWEN3_5_27B, text_config={**text, "full_attention_interval": 8})
    assert kv_bytes(spec)[0] == 65_536 // 2


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_language_fields_are_found_in_both_vision_layouts(layout: str, tmp_path: Path) -> None:
    text = config_of(facts_of("Qwen/Qwen2.5-7B-Instruct"))
    outer = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}
    vision = {"vision_config": {"depth": 32}}
    config = {**text, **outer, **vision}
    if layout == "nested":
        config = {**outer, **vision, "text_config": {**text, "model_type": "qwen2_5_vl_text"}}
    spec = spec_of(tmp_path, config)
    assert (spec.parameters, spec.vocab_size, spec.multimodal) == (7_615_616_512, 152_064, True)


@pytest.mark.parametrize(
    ("ties", "tied"),
    [((True, False), True), ((False, True), False), ((None, True), True), ((None, None), False)],
)
def test_the_nested_tie_of_embeddings_wins_over_the_outer_one(
    ties: tuple[bool | None, bool | None], *, tied: bool, tmp_path: Path
) -> None:
    config = config_of(facts_of("Qwen/Qwen3-VL-2B"))
    text = config["text_config"]
    assert isinstance(text, dict)
    for place, value in zip((text, config), ties, strict=True):
        place["tie_word_embeddings"] = value
        if value is None:
            del place["tie_word_embeddings"]
    assert spec_of(tmp_path, config).tie_word_embeddings is tied


def test_sizes_that_a_nested_config_leaves_out_are_the_familys_and_are_told(
    tmp_path: Path,
) -> None:
    gemma3_4b = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152},
        "torch_dtype": "bfloat16",
    }
    spec = spec_of(tmp_path, gemma3_4b)
    assert spec.parameters == 3_880_263_168
    assert kv_bytes(spec) == (34 * 4096, 5 * 4096)
    assert any("vocab_size 262208" in note for note in spec.notes)


def test_sizes_that_a_top_level_config_leaves_out_are_refused(tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "hidden_size"}
    with pytest.raises(CheckpointError, match="no hidden_size"):
        spec_of(tmp_path, config)


def test_a_config_without_kv_heads_is_multi_head_attention(tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert spec_of(tmp_path, config).kv_heads == 4


def test_multi_query_attention_has_one_kv_head(tmp_path: Path) -> None:
    bigcode = {
        "architectures": ["GPTBigCodeForCausalLM"],
        "model_type": "gpt_bigcode",
        "n_embd": 2048,
        "n_head": 16,
        "n_inner": 8192,
        "n_layer": 24,
        "n_positions": 8192,
        "vocab_size": 49152,
        "multi_query": True,
        "torch_dtype": "float16",
    }
    spec = spec_of(tmp_path, bigcode)
    assert (spec.kv_heads, kv_bytes(spec)[0]) == (1, 2 * 24 * 128 * 2)
    # starcoderbase-1b
    assert spec.parameters == 1_137_207_296


def block(group: int | None, multiplier: float | None) -> dict[str, object]:
    return {
        "attention": {"no_op": group is None, "n_heads_in_group": group},
        "ffn": {"no_op": multiplier is None, "ffn_mult": multiplier},
    }


def test_a_pruned_model_is_counted_block_by_block(tmp_path: Path) -> None:
    config = {
        **config_of(facts_of("meta-llama/Llama-3.1-8B")),
        "architectures": ["DeciLMForCausalLM"],
        "model_type": "nemotron-nas",
        "num_key_value_heads": None,
        "intermediate_size": None,
        "num_hidden_layers": 4,
        "block_configs": [
            block(4, 5.25),
            block(8, 2.625),
            block(None, 1.0),
            {
                "attention": {"no_op": False, "replace_with_linear": True},
                "ffn": {"no_op": True},
            },
        ],
    }
    spec = spec_of(tmp_path, config)
    hidden, inner = 4096, (14336, 7168, 2816)
    attention = [hidden * (2 * hidden + 2 * 128 * keys) for keys in (8, 4)]
    norms = 2 + 2 + 1 + 1 + 1
    assert spec.parameters == (
        2 * 128_256 * hidden
        + sum(attention)
        + hidden * hidden
        + 3 * hidden * sum(inner)
        + norms * hidden
    )
    assert kv_bytes(spec)[0] == 2 * 128 * (8 + 4) * 2


def test_a_pruned_block_may_state_its_width_and_window(tmp_path: Path) -> None:
    first = {
        "attention": {"n_heads_in_group": 2, "window_length": 8},
        "ffn": {"intermediate_size": 40},
    }
    second = {"attention": {"n_heads_in_group": 4}, "ffn": {"replace_with_linear": True}}
    spec = spec_of(
        tmp_path,
        architectures=["DeciLMForCausalLM"],
        model_type="deci",
        block_configs=[first, second],
    )
    assert spec.breakdown is not None
    assert spec.breakdown.mlp == 3 * 16 * 40 + 16 * 16
    assert kv_bytes(spec) == (2 * 4 * (2 + 1) * 2, 2 * 4 * 2)


@pytest.mark.parametrize(
    "blocks",
    [
        [{"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 1.0}}],
        [{"ffn": {"ffn_mult": 1.0}}] * 2,
        [{"attention": {"n_heads_in_group": 3}, "ffn": {"ffn_mult": 1.0}}] * 2,
        [{"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": "2"}}] * 2,
        [{"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 1e308}}] * 2,
        [{"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": -1}}] * 2,
        [{"attention": {"no_op": False}, "ffn": {"ffn_mult": 1.0}}] * 2,
    ],
    ids=str,
)
def test_broken_blocks_are_refused(blocks: list[object], tmp_path: Path) -> None:
    changes = {"architectures": ["DeciLMForCausalLM"], "block_configs": blocks}
    with pytest.raises(CheckpointError, match=r"^config\.json"):
        spec_of(tmp_path, {**LLAMA, **changes})


def test_kv_heads_listed_by_layer_are_added_up(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, num_key_value_heads=[4, 1])
    assert kv_bytes(spec)[0] == 2 * 4 * (4 + 1) * 2


def test_a_list_by_layer_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="3 entries for 2 layers"):
        spec_of(tmp_path, num_key_value_heads=[4, 1, 1])


def test_the_eagle3_head_of_qwen3_32b_counts_no_embedding(tmp_path: Path) -> None:
    head = {"hidden_size": 5120, "intermediate_size": 25600, "num_attention_heads": 64}
    spec = published("EAGLE3 head for Qwen3-8B", tmp_path, **head)
    assert spec.parameters == 782_520_320
    assert spec.breakdown is not None
    assert (spec.breakdown.embedding, spec.breakdown.lm_head) == (0, 163_840_000)
    assert spec.head is not None
    assert (spec.head.kind, spec.head.draft_vocab_size) == ("eagle3", 32_000)


def test_an_eagle3_head_for_a_wider_target_projects_its_states(tmp_path: Path) -> None:
    plain = published("EAGLE3 head for Qwen3-8B", tmp_path / "a")
    wider = published("EAGLE3 head for Qwen3-8B", tmp_path / "b", target_hidden_size=8192)
    assert wider.parameters - plain.parameters == 3 * (8192 - 4096) * 4096


def test_an_eagle_head_is_one_layer_and_a_projection(tmp_path: Path) -> None:
    config = config_of(facts_of("meta-llama/Llama-3.1-8B"))
    config |= {"architectures": ["EagleLlamaForCausalLM"], "num_hidden_layers": 1}
    spec = spec_of(tmp_path, config)
    layer = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336 + 4096
    assert spec.parameters == layer + 2 * 4096 * 4096 + 4096
    assert kv_bytes(spec)[0] == 4096


def test_medusa_heads_have_no_cache(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        {
            "architectures": ["MedusaModel"],
            "medusa_num_heads": 5,
            "medusa_num_layers": 1,
            "hidden_size": 4096,
            "vocab_size": 32000,
        },
    )
    assert spec.parameters == 5 * (4096 * 4096 + 4096 + 4096 * 32000)
    assert kv_bytes(spec) == (0, 0)


def test_a_separate_mtp_module_is_a_head_with_a_latent_cache(tmp_path: Path) -> None:
    spec = published(
        "deepseek-ai/DeepSeek-V3", tmp_path, architectures=["DeepseekV3ForCausalLMNextN"]
    )
    assert (spec.parameters, kv_bytes(spec)[0]) == (11_610_068_224, 576 * 2)


def test_more_experts_per_token_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="9 of 8 experts per token"):
        published("mistralai/Mixtral", tmp_path, num_experts_per_tok=9)


def test_a_latent_model_may_have_no_experts(tmp_path: Path) -> None:
    spec = published("deepseek-ai/DeepSeek-V3", tmp_path, n_routed_experts=None)
    assert spec.breakdown is not None
    assert spec.breakdown.experts == 0


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


@pytest.mark.parametrize(
    ("rope", "kind", "factor"),
    [
        (
            {
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
            "llama3",
            8.0,
        ),
        ({"type": "yarn", "factor": 4.0}, "yarn", 4.0),
        (None, "default", None),
    ],
)
def test_every_spelling_of_rope_scaling_is_read_and_raises_no_context(
    rope: object, kind: str, factor: float | None, tmp_path: Path
) -> None:
    spec = published("meta-llama/Llama-3.1-8B", tmp_path, rope_scaling=rope)
    assert (spec.rope.kind, spec.rope.factor, spec.context_length) == (kind, factor, 131_072)


def test_rope_parameters_by_layer_type_are_read(tmp_path: Path) -> None:
    by_type = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    }
    spec = published("google/gemma-3-1b-it", tmp_path, rope_parameters=by_type)
    assert (spec.rope.kind, spec.rope.factor) == ("linear", 8.0)


@pytest.mark.parametrize("pad", [None, -1])
def test_no_pad_token_is_none_however_it_is_written(pad: int | None, tmp_path: Path) -> None:
    assert spec_of(tmp_path, pad_token_id=pad).special_ids.pad is None


def test_a_missing_dtype_is_taken_as_16_bit_and_told(tmp_path: Path) -> None:
    spec = published("Qwen/Qwen3-4B", tmp_path)
    assert spec.weight_bytes == 2 * 4_022_468_096
    assert any("bfloat16" in note for note in spec.notes)


@pytest.mark.parametrize(
    "broken",
    [
        {"num_hidden_layers": -1},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 10**9},
        {"hidden_size": 0},
        {"hidden_size": 10**12},
        {"hidden_size": 10**400},
        {"hidden_size": "16"},
        {"hidden_size": 16.5},
        {"hidden_size": True},
        {"hidden_size": [16]},
        {"hidden_size": 18},
        {"num_key_value_heads": 3},
        {"vocab_size": {"a": 1}},
        {"max_position_embeddings": -5},
        {"torch_dtype": "int3"},
        {"tie_word_embeddings": "yes"},
        {"architectures": "LlamaForCausalLM"},
        {"architectures": []},
        {"eos_token_id": ["</s>"]},
        {"rope_scaling": "linear"},
        {"rope_scaling": {"type": 3}},
        {"rope_scaling": {"type": "linear", "factor": "8"}},
        {"text_config": [1]},
        {"quantization_config": 8},
        {"layer_types": ["full_attention"]},
        {"layer_types": "full_attention"},
        {"layer_types": ["full_attention", "odd"]},
        {"rope_scaling": {"type": "linear", "factor": -1}},
        {"head_dim": None, "hidden_size": 15},
        {"quantization_config": {"quant_method": 8}},
        {"quantization_config": {"quant_method": "awq", "bits": "4"}},
    ],
    ids=str,
)
def test_absurd_sizes_and_wrong_types_are_one_clear_error(
    broken: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        spec_of(tmp_path, {**LLAMA, **broken})
    assert len(str(caught.value)) < 200
