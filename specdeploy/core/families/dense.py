"""Dense decoder families, by model_type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

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


DENSE: Final[Mapping[str, Style]] = {
    "llama": Style(
        ("LlamaForCausalLM",),
        context=2_048,
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
    "qwen2": Style(
        ("Qwen2ForCausalLM",), context=32_768, qkv_bias=True, o_bias=False, window="qwen"
    ),
    "qwen3": Style(
        ("Qwen3ForCausalLM",),
        context=32_768,
        qk_norm="per_head_dim",
        window="qwen",
        absent={"head_dim": 128},
    ),
    "gemma": Style(
        ("GemmaForCausalLM",),
        context=8_192,
        absent={**_TIED, "head_dim": 256},
    ),
    "gemma2": Style(
        ("Gemma2ForCausalLM",),
        context=8_192,
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
        o_bias=False,
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
        norms=0,
        final_norm=False,
    ),
    "olmo2": Style(
        ("Olmo2ForCausalLM",),
        context=2_048,
        qk_norm="full",
    ),
    "cohere": Style(
        ("CohereForCausalLM",),
        context=8_192,
        norms=1,
        qk_norm="full",
        qk_norm_switch="use_qk_norm",
        absent=_TIED,
    ),
    "cohere2": Style(
        ("Cohere2ForCausalLM",),
        context=8_192,
        norms=1,
        window=4,
        absent={**_TIED, "sliding_window": 4096},
    ),
    "granite": Style(
        ("GraniteForCausalLM",),
        context=2_048,
    ),
    "smollm3": Style(
        ("SmolLM3ForCausalLM",),
        context=32_768,
        absent={**_TIED, "num_key_value_heads": 4},
    ),
    "glm4": Style(
        ("Glm4ForCausalLM",),
        o_bias=False,
        context=131_072,
        norms=4,
        absent={"attention_bias": True, "head_dim": 128, "num_key_value_heads": 2},
    ),
    "exaone": Style(
        ("ExaoneForCausalLM", "LlamaForCausalLM"),
        context=4_096,
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
        o_bias="attention_out_bias",
        absent={"attention_bias": True, "num_key_value_heads": 8, "head_dim": 128},
    ),
    "nemotron": Style(
        ("NemotronForCausalLM",),
        context=4_096,
        norm_bias=True,
        gated=False,
    ),
}
