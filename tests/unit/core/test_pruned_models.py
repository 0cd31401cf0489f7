"""Models whose config lists a value or a block per layer."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_files import (
    LLAMA,
    config_of,
    facts_of,
    kv_bytes,
    spec_of,
)

from specdeploy.errors import CheckpointError


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
