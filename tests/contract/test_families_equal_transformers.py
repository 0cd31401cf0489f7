"""Every family's arithmetic against the parameters that transformers really creates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from specdeploy.adapters.checkpoints import CheckpointFiles
from specdeploy.core.families.table import STYLES

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Small, and with no two sizes alike, so that a factor in the wrong place shows.
SIZES: dict[str, object] = {
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "vocab_size": 130,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEAD_DIM = {"head_dim": 32}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
LATENT = {
    "q_lora_rank": 20,
    "kv_lora_rank": 28,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 2,
    "moe_intermediate_size": 24,
    "n_group": 1,
    "topk_group": 1,
    "num_key_value_heads": 6,
}
DELTA = {
    "head_dim": 32,
    "linear_conv_kernel_dim": 3,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 14,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "partial_rotary_factor": 0.25,
}
# These families know no other spelling.
GPT2: dict[str, object] = {
    **dict.fromkeys((k for k in SIZES if k.endswith(("size", "layers", "heads"))), None),
    "n_embd": 96,
    "n_head": 6,
    "n_layer": 5,
    "n_positions": 64,
    "n_inner": None,
    "vocab_size": 130,
}
WITH_BIAS = {"attention_bias": True, "mlp_bias": True}

CASES: list[tuple[str, str, Mapping[str, object]]] = [
    ("llama", "llama", {}),
    ("llama-bias", "llama", {**WITH_BIAS, "tie_word_embeddings": True, **HEAD_DIM}),
    ("mistral", "mistral", HEAD_DIM),
    ("ministral3", "ministral3", HEAD_DIM),
    ("qwen2", "qwen2", {}),
    ("qwen3", "qwen3", HEAD_DIM),
    ("qwen3-bias", "qwen3", {"attention_bias": True, **HEAD_DIM}),
    ("gemma", "gemma", HEAD_DIM),
    ("gemma2", "gemma2", HEAD_DIM),
    ("gemma3_text", "gemma3_text", HEAD_DIM),
    ("phi3", "phi3", {}),
    ("phi", "phi", {}),
    ("gpt2", "gpt2", GPT2),
    ("gpt_bigcode", "gpt_bigcode", GPT2),
    ("gpt_bigcode-mha", "gpt_bigcode", {**GPT2, "multi_query": False}),
    ("gpt_neox", "gpt_neox", {"num_key_value_heads": None}),
    ("falcon-7b", "falcon", {"num_key_value_heads": None}),
    ("falcon-rw", "falcon", {"multi_query": False, "parallel_attn": False, "bias": True}),
    ("falcon-40b", "falcon", {"new_decoder_architecture": True, "num_kv_heads": 3}),
    ("starcoder2", "starcoder2", {}),
    ("stablelm", "stablelm", {"use_qkv_bias": True}),
    ("stablelm-parallel", "stablelm", {"use_parallel_residual": True, "qk_layernorm": True}),
    ("olmo", "olmo", {}),
    ("olmo2", "olmo2", {}),
    ("cohere", "cohere", {"use_qk_norm": True}),
    ("cohere2", "cohere2", {}),
    ("granite", "granite", WITH_BIAS),
    ("smollm3", "smollm3", {}),
    ("glm4", "glm4", HEAD_DIM),
    ("exaone", "exaone", WITH_BIAS),
    ("exaone4", "exaone4", {}),
    ("seed_oss", "seed_oss", HEAD_DIM),
    ("nemotron", "nemotron", {**WITH_BIAS, **HEAD_DIM}),
    ("mixtral", "mixtral", LOCAL_EXPERTS),
    ("qwen2_moe", "qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 36}),
    ("qwen3_moe", "qwen3_moe", {**EXPERTS, "decoder_sparse_step": 2, **HEAD_DIM}),
    ("qwen3_moe-dense", "qwen3_moe", {**EXPERTS, "mlp_only_layers": [1], **HEAD_DIM}),
    ("olmoe", "olmoe", EXPERTS),
    ("granitemoe", "granitemoe", LOCAL_EXPERTS),
    (
        "llama4_text",
        "llama4_text",
        {**LOCAL_EXPERTS, **HEAD_DIM, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 50},
    ),
    ("gpt_oss", "gpt_oss", {**LOCAL_EXPERTS, **HEAD_DIM}),
    (
        "glm4_moe",
        "glm4_moe",
        {k: v for k, v in LATENT.items() if "lora" not in k and "num_key" not in k}
        | {"use_qk_norm": True, "head_dim": 32},
    ),
    ("deepseek_v2", "deepseek_v2", LATENT),
    ("deepseek_v2-lite", "deepseek_v2", {**LATENT, "q_lora_rank": None}),
    ("deepseek_v3", "deepseek_v3", LATENT),
    ("qwen3_next", "qwen3_next", {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 36}),
    ("qwen3_5_text", "qwen3_5_text", DELTA),
    (
        "qwen3_5_moe_text",
        "qwen3_5_moe_text",
        {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 36},
    ),
]


def test_every_family_of_the_table_is_compared() -> None:
    # DeciLM's code is not part of transformers.
    assert {model_type for _, model_type, _ in CASES} == set(STYLES) - {"deci"}


@pytest.mark.parametrize(("model_type", "sizes"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_parameters_equal_those_that_transformers_creates(
    model_type: str, sizes: Mapping[str, object], tmp_path: Path
) -> None:
    given = {**SIZES, **sizes}
    if "n_embd" in given:
        given = {k: v for k, v in given.items() if v is not None or k == "n_inner"}
    config = transformers.AutoConfig.for_model(model_type, **given)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    written = {**config.to_dict(), "architectures": [type(model).__name__]}
    (tmp_path / "config.json").write_text(json.dumps(written, default=str))

    spec = CheckpointFiles().read_model(tmp_path)

    learned_buffers = sum(
        buffer.numel() for name, buffer in model.named_buffers() if "correction_bias" in name
    )
    assert spec.parameters == learned_buffers + sum(p.numel() for p in model.parameters())


WINDOWED = {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 2}


@pytest.mark.parametrize(
    ("model_type", "sizes"),
    [
        case[1:]
        for case in CASES
        if case[0]
        in {
            "qwen2",
            "qwen3",
            "gemma2",
            "gemma3_text",
            "cohere2",
            "exaone4",
            "gpt_oss",
            "qwen3_next",
            "qwen3_5_text",
            "qwen3_5_moe_text",
        }
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_layers_without_a_layer_types_key_follow_the_rule_of_the_family(
    model_type: str, sizes: Mapping[str, object], tmp_path: Path
) -> None:
    given = {**SIZES, "num_hidden_layers": 14, **sizes, **WINDOWED}
    config = transformers.AutoConfig.for_model(model_type, **given)
    written = config.to_dict()
    kinds = written.pop("layer_types")
    (tmp_path / "config.json").write_text(json.dumps(written, default=str))

    spec = CheckpointFiles().read_model(tmp_path)

    counted = {group.width.window: group.layers for group in spec.kv_layers}
    assert counted == {
        window: kinds.count(kind)
        for kind, window in (("full_attention", None), ("sliding_attention", 16))
        if kind in kinds
    }
