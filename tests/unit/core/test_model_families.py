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
    kv_bytes,
    published,
    spec_of,
)

from specdeploy.errors import CheckpointError


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


def test_more_experts_per_token_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="9 of 8 experts per token"):
        published("mistralai/Mixtral", tmp_path, num_experts_per_tok=9)


def test_a_latent_model_may_have_no_experts(tmp_path: Path) -> None:
    spec = published("deepseek-ai/DeepSeek-V3", tmp_path, n_routed_experts=None)
    assert spec.breakdown is not None
    assert spec.breakdown.experts == 0
