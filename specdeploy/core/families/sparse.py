"""Families with experts, latent attention or linear-attention layers, by model_type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from specdeploy.core.families import mixture
from specdeploy.core.families.facts import ConfigFacts
from specdeploy.core.families.style import Style

_DELTA: Final = {
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
_QWEN3_5_SIZES: Final = {
    "vocab_size": 248_320,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
}
_LATENT: Final = {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}


def _chunks(facts: ConfigFacts) -> Mapping[str, object]:
    """Llama 4: layers with rotary positions attend within a chunk, every fourth one fully."""
    count = facts.whole("num_hidden_layers")
    rotary = facts.items("no_rope_layers") or [(i + 1) % 4 for i in range(count)]
    kinds = ["sliding_attention" if flag else "full_attention" for flag in rotary]
    return {"layer_types": kinds, "sliding_window": facts.get("attention_chunk_size")}


SPARSE: Final[Mapping[str, Style]] = {
    "mixtral": Style(
        ("MixtralForCausalLM",),
        context=131_072,
        window="all",
        mixture=mixture.every_layer,
        absent={"num_key_value_heads": 8, "num_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen2_moe": Style(
        ("Qwen2MoeForCausalLM",),
        o_bias=False,
        context=32_768,
        qkv_bias="qkv_bias",
        window="qwen",
        mixture=mixture.qwen,
        absent={"qkv_bias": True},
    ),
    "qwen3_moe": Style(
        ("Qwen3MoeForCausalLM",),
        context=32_768,
        qk_norm="per_head_dim",
        window="qwen",
        mixture=mixture.qwen,
    ),
    "olmoe": Style(
        ("OlmoeForCausalLM",),
        context=4_096,
        qk_norm="full",
        mixture=mixture.every_layer,
    ),
    "granitemoe": Style(
        ("GraniteMoeForCausalLM",),
        context=2_048,
        mixture=mixture.every_layer,
    ),
    "llama4_text": Style(
        ("Llama4ForCausalLM",),
        context=131_072,
        dense_key="intermediate_size_mlp",
        mixture=mixture.llama4,
        absent={
            "attention_chunk_size": 8192,
            "head_dim": 128,
            "num_key_value_heads": 8,
            "num_experts": 16,
            "num_experts_per_tok": 1,
        },
        adapt=_chunks,
    ),
    "gpt_oss": Style(
        ("GptOssForCausalLM",),
        context=131_072,
        sinks=True,
        window=2,
        mixture=mixture.gpt_oss,
        absent={"attention_bias": True, "head_dim": 64, "sliding_window": 128},
    ),
    "glm4_moe": Style(
        ("Glm4MoeForCausalLM",),
        o_bias=False,
        context=131_072,
        qk_norm="per_head_dim",
        qk_norm_switch="use_qk_norm",
        mixture=partial(mixture.deepseek, balance_bias=True),
        mtp_key="num_nextn_predict_layers",
    ),
    "deepseek_v2": Style(
        ("DeepseekV2ForCausalLM",),
        context=2_048,
        attention="latent",
        mixture=mixture.deepseek,
        absent=_LATENT,
    ),
    "deepseek_v3": Style(
        ("DeepseekV3ForCausalLM", "KimiK2ForCausalLM"),
        context=4_096,
        attention="latent",
        mixture=partial(mixture.deepseek, balance_bias=True),
        mtp_key="num_nextn_predict_layers",
        absent=_LATENT,
    ),
    "qwen3_next": Style(
        ("Qwen3NextForCausalLM",),
        context=32_768,
        output_gate=True,
        qk_norm="per_head_dim",
        linear_every=4,
        mtp_key="mtp_num_hidden_layers",
        mixture=mixture.qwen,
        absent=_DELTA,
    ),
    "qwen3_5_text": Style(
        ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),
        context=32_768,
        output_gate=True,
        qk_norm="per_head_dim",
        linear_every=4,
        mtp_key="mtp_num_hidden_layers",
        absent=_DELTA,
        nested_absent=_QWEN3_5_SIZES,
    ),
    "qwen3_5_moe_text": Style(
        ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
        context=32_768,
        output_gate=True,
        qk_norm="per_head_dim",
        linear_every=4,
        mtp_key="mtp_num_hidden_layers",
        mixture=mixture.qwen,
        absent=_DELTA,
    ),
}
