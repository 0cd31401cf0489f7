"""Keys that every config states: rope, special ids, dtype, and values that no model has."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_files import (
    LLAMA,
    published,
    spec_of,
)

from specdeploy.errors import CheckpointError


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


def test_rope_parameters_that_name_no_type_are_the_default(tmp_path: Path) -> None:
    by_type = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    spec = published("google/gemma-3-1b-it", tmp_path, rope_parameters=by_type)
    assert spec.rope.kind == "default"
