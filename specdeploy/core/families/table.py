"""The families whose sizes follow from config.json alone, by model_type.

Defaults are those of the published configuration classes. A model type that is not listed
is planned from tensor headers or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from specdeploy.core.families import mixture
from specdeploy.core.families.facts import ConfigFacts
from specdeploy.core.families.style import Style

_TIED: Final = {"tie_word_embeddings": True}
_LLAMA_SIZES: Final = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
_GEMMA3_SIZES: Final = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
}
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


def _parallel(serial: int, key: str, facts: ConfigFacts) -> int:
    """One norm per layer when attention and feed-forward run side by side."""
    return 1 if facts.flag(key) else serial


def _falcon_norms(facts: ConfigFacts) -> int:
    if facts.flag("new_decoder_architecture"):
        return facts.whole("num_ln_in_parallel_attn", default=2)
    return _parallel(2, "parallel_attn", facts)


def _falcon_keys(facts: ConfigFacts) -> Mapping[str, object]:
    if facts.flag("new_decoder_architecture"):
        return {"intermediate_size": facts.get("ffn_hidden_size")}
    heads = 1 if facts.flag("multi_query") else facts.get("num_attention_heads")
    return {"num_key_value_heads": heads, "intermediate_size": facts.get("ffn_hidden_size")}


def _bigcode_keys(facts: ConfigFacts) -> Mapping[str, object]:
    return {"num_key_value_heads": 1} if facts.flag("multi_query") else {}


def _letters_to_number(facts: ConfigFacts) -> Mapping[str, object]:
    """EXAONE 4 may spell its pattern with letters: LLLG keeps every fourth layer global."""
    pattern = facts.get("sliding_window_pattern")
    return {"sliding_window_pattern": len(pattern)} if isinstance(pattern, str) else {}


def _chunks(facts: ConfigFacts) -> Mapping[str, object]:
    """Llama 4: layers with rotary positions attend within a chunk, every fourth one fully."""
    count = facts.whole("num_hidden_layers")
    rotary = facts.items("no_rope_layers") or [(i + 1) % 4 for i in range(count)]
    kinds = ["sliding_attention" if flag else "full_attention" for flag in rotary]
    return {"layer_types": kinds, "sliding_window": facts.get("attention_chunk_size")}


STYLES: Final[Mapping[str, Style]] = {
    "llama": Style(
        ("LlamaForCausalLM",),
        context=2_048,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        nested_absent=_LLAMA_SIZES,
    ),
    "deci": Style(("DeciLMForCausalLM",)),
    "mistral": Style(
        ("MistralForCausalLM",),
        context=131_072,
        window="all",
        absent={"sliding_window": 4096, "num_key_value_heads": 8},
        nested_absent={**_LLAMA_SIZES, "intermediate_size": 14336},
    ),
    "ministral3": Style(
        ("Ministral3ForCausalLM",),
        context=262_144,
        window="all",
        absent={"num_key_value_heads": 8, "head_dim": 128},
    ),
    "qwen2": Style(("Qwen2ForCausalLM",), context=32_768, qkv_bias=True, window="qwen"),
    "qwen3": Style(
        ("Qwen3ForCausalLM",),
        context=32_768,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="per_head_dim",
        window="qwen",
        absent={"head_dim": 128},
    ),
    "gemma": Style(
        ("GemmaForCausalLM",),
        context=8_192,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        absent={**_TIED, "head_dim": 256},
    ),
    "gemma2": Style(
        ("Gemma2ForCausalLM",),
        context=8_192,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norms=4,
        window=2,
        absent={
            **_TIED,
            "head_dim": 256,
            "sliding_window": 4096,
            "num_key_value_heads": 4,
        },
    ),
    "gemma3_text": Style(
        ("Gemma3ForCausalLM",),
        context=131_072,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="per_head_dim",
        norms=4,
        window=6,
        absent={
            **_TIED,
            "head_dim": 256,
            "sliding_window": 4096,
            "num_key_value_heads": 4,
        },
        nested_absent=_GEMMA3_SIZES,
    ),
    "phi3": Style(("Phi3ForCausalLM",), context=4_096, window="all"),
    "phi": Style(
        ("PhiForCausalLM",),
        context=2_048,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm_bias=True,
        head_bias=True,
        gated=False,
        norms=1,
        inner_factor=4,
    ),
    "gpt2": Style(
        ("GPT2LMHeadModel",),
        context=1_024,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm_bias=True,
        gated=False,
        learned_positions=0,
        inner_factor=4,
        absent=_TIED,
    ),
    "gpt_bigcode": Style(
        ("GPTBigCodeForCausalLM",),
        context=1_024,
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        norm_bias=True,
        gated=False,
        learned_positions=0,
        inner_factor=4,
        absent={**_TIED, "multi_query": True},
        adapt=_bigcode_keys,
    ),
    "gpt_neox": Style(
        ("GPTNeoXForCausalLM",),
        context=2_048,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias=True,
        norm_bias=True,
        gated=False,
        absent={"attention_bias": True},
    ),
    "falcon": Style(
        ("FalconForCausalLM",),
        context=2_048,
        qkv_bias="bias",
        o_bias="bias",
        mlp_bias="bias",
        norm_bias=True,
        gated=False,
        norms=_falcon_norms,
        inner_factor=4,
        absent={
            **_TIED,
            "multi_query": True,
            "parallel_attn": True,
        },
        adapt=_falcon_keys,
    ),
    "starcoder2": Style(
        ("Starcoder2ForCausalLM",),
        context=4_096,
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        norm_bias=True,
        gated=False,
        window="all",
        absent={**_TIED, "use_bias": True, "num_key_value_heads": 2},
    ),
    "stablelm": Style(
        ("StableLmForCausalLM",),
        context=4_096,
        qkv_bias="use_qkv_bias",
        norm_bias=True,
        norms=partial(_parallel, 2, "use_parallel_residual"),
        qk_norm="full",
        qk_norm_switch="qk_layernorm",
    ),
    "olmo": Style(
        ("OlmoForCausalLM",),
        context=2_048,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norms=0,
        final_norm=False,
    ),
    "olmo2": Style(
        ("Olmo2ForCausalLM",),
        context=2_048,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="full",
    ),
    "cohere": Style(
        ("CohereForCausalLM",),
        context=8_192,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norms=1,
        qk_norm="full",
        qk_norm_switch="use_qk_norm",
        absent=_TIED,
    ),
    "cohere2": Style(
        ("Cohere2ForCausalLM",),
        context=8_192,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norms=1,
        window=4,
        absent={**_TIED, "sliding_window": 4096},
    ),
    "granite": Style(
        ("GraniteForCausalLM",),
        context=2_048,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
    ),
    "smollm3": Style(
        ("SmolLM3ForCausalLM",),
        context=32_768,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        absent={**_TIED, "num_key_value_heads": 4},
    ),
    "glm4": Style(
        ("Glm4ForCausalLM",),
        context=131_072,
        qkv_bias="attention_bias",
        norms=4,
        absent={"attention_bias": True, "head_dim": 128, "num_key_value_heads": 2},
    ),
    "exaone": Style(
        ("ExaoneForCausalLM", "LlamaForCausalLM"),
        context=4_096,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        absent={"num_key_value_heads": 8},
    ),
    "exaone4": Style(
        ("Exaone4ForCausalLM",),
        context=2_048,
        qk_norm="per_head_dim",
        window=4,
        absent={"sliding_window": 4096},
        adapt=_letters_to_number,
    ),
    "seed_oss": Style(
        ("SeedOssForCausalLM",),
        context=524_288,
        qkv_bias="attention_bias",
        o_bias="attention_out_bias",
        mlp_bias="mlp_bias",
        absent={"attention_bias": True, "num_key_value_heads": 8, "head_dim": 128},
    ),
    "nemotron": Style(
        ("NemotronForCausalLM",),
        context=4_096,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mlp_bias="mlp_bias",
        norm_bias=True,
        gated=False,
    ),
    "mixtral": Style(
        ("MixtralForCausalLM",),
        context=131_072,
        window="all",
        mixture=mixture.every_layer,
        absent={"num_key_value_heads": 8, "num_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen2_moe": Style(
        ("Qwen2MoeForCausalLM",),
        context=32_768,
        qkv_bias="qkv_bias",
        window="qwen",
        mixture=mixture.qwen,
        absent={"qkv_bias": True},
    ),
    "qwen3_moe": Style(
        ("Qwen3MoeForCausalLM",),
        context=32_768,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="per_head_dim",
        window="qwen",
        mixture=mixture.qwen,
    ),
    "olmoe": Style(
        ("OlmoeForCausalLM",),
        context=4_096,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        qk_norm="full",
        mixture=mixture.every_layer,
    ),
    "granitemoe": Style(
        ("GraniteMoeForCausalLM",),
        context=2_048,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        mixture=mixture.every_layer,
    ),
    "llama4_text": Style(
        ("Llama4ForCausalLM",),
        context=131_072,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
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
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        sinks=True,
        window=2,
        mixture=mixture.gpt_oss,
        absent={"attention_bias": True, "head_dim": 64, "sliding_window": 128},
    ),
    "glm4_moe": Style(
        ("Glm4MoeForCausalLM",),
        context=131_072,
        qkv_bias="attention_bias",
        qk_norm="per_head_dim",
        qk_norm_switch="use_qk_norm",
        mixture=partial(mixture.deepseek, balance_bias=True),
        mtp_key="num_nextn_predict_layers",
    ),
    "deepseek_v2": Style(
        ("DeepseekV2ForCausalLM",),
        context=2_048,
        attention="latent",
        qkv_bias="attention_bias",
        mixture=mixture.deepseek,
        absent=_LATENT,
    ),
    "deepseek_v3": Style(
        ("DeepseekV3ForCausalLM", "KimiK2ForCausalLM"),
        context=4_096,
        attention="latent",
        qkv_bias="attention_bias",
        mixture=partial(mixture.deepseek, balance_bias=True),
        mtp_key="num_nextn_predict_layers",
        absent=_LATENT,
    ),
    "qwen3_next": Style(
        ("Qwen3NextForCausalLM",),
        context=32_768,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
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
        qkv_bias="attention_bias",
        o_bias="attention_bias",
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
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        output_gate=True,
        qk_norm="per_head_dim",
        linear_every=4,
        mtp_key="mtp_num_hidden_layers",
        mixture=mixture.qwen,
        absent=_DELTA,
    ),
}

# Other names of the same decoders: older spellings, and language parts of vision models.
SAME_AS: Final[Mapping[str, str]] = {
    "phi-msft": "phi",
    "kimi_k2": "deepseek_v3",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
