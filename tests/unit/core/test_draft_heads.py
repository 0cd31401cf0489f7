"""Draft heads: what they hold themselves, and what they take from their target."""

from __future__ import annotations

from pathlib import Path

from checkpoint_files import (
    config_of,
    facts_of,
    kv_bytes,
    published,
    spec_of,
)


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
