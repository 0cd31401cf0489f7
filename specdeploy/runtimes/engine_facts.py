"""What an engine will be: the sizes and switches that its config.json states.

``trtllm-build`` changes some settings without being asked (``tensorrt_llm/builder.py``). They
are computed here beforehand, so that a plan holds for the engine that comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import Field

from specdeploy.core.build import BuilderChange, Settings
from specdeploy.core.deployment import ModelUse, ResolvedLimits
from specdeploy.core.engine_config import config_mismatches
from specdeploy.core.kv_cache import resolve_kv_dtype
from specdeploy.core.record import Record
from specdeploy.core.release_profile import ReleaseProfile
from specdeploy.errors import ConfigError

# Small blocks leave little to recompute: only whole ones are shared between rounds.
TOKENS_PER_BLOCK: Final = 32
# Precisions that the FP8 attention kernels go with.
_FP8_WORKFLOW: Final = frozenset({"fp8", "w4a8", "nvfp4"})
_KV_ALGORITHMS: Final[Mapping[str, str | None]] = {
    "fp32": None,
    "bf16": None,
    "fp16": None,
    "fp8": "FP8",
    "int8": "INT8",
}
# Numbers of tensorrt_llm.models.modeling_utils.SpeculativeDecodingMode, in its order.
_MODES: Final[Mapping[str | None, int]] = {
    None: 1,
    "draft_tokens_external": 2,
    "medusa": 4,
    "lookahead_decoding": 8,
    "explicit_draft_tokens": 16,
    "eagle": 32,
}
_PLACES: Final[Mapping[str, str]] = {
    "tp_size": "pretrained_config.mapping.tp_size",
    "quant_algo": "pretrained_config.quantization.quant_algo",
    "kv_cache_quant_algo": "pretrained_config.quantization.kv_cache_quant_algo",
    "max_batch_size": "build_config.max_batch_size",
    "max_seq_len": "build_config.max_seq_len",
    "max_num_tokens": "build_config.max_num_tokens",
    "max_draft_len": "build_config.max_draft_len",
    "speculative_decoding_mode": "build_config.speculative_decoding_mode",
    "gather_generation_logits": "build_config.gather_generation_logits",
    "tokens_per_block": "build_config.plugin_config.tokens_per_block",
    "use_paged_context_fmha": "build_config.plugin_config.use_paged_context_fmha",
    "use_fp8_context_fmha": "build_config.plugin_config.use_fp8_context_fmha",
}


class EngineFacts(Record):
    """The part of an engine's config.json that serving depends on."""

    tp_size: int
    quant_algo: str | None
    kv_cache_quant_algo: str | None
    max_batch_size: int
    max_seq_len: int = Field(description="Room for the draft tokens included.")
    max_num_tokens: int
    max_draft_len: int
    speculative_decoding_mode: str | None
    gather_generation_logits: bool
    tokens_per_block: int
    use_paged_context_fmha: bool
    use_fp8_context_fmha: bool


class Speculation(Record):
    """How an engine takes part in speculation; without any, ``mode`` is None and ``reuse`` off.

    A drafting engine is an ordinary one that reuses its KV cache from round to round.
    """

    mode: str | None = None
    draft_length: int = 0
    reuse: bool = False
    logits: bool = Field(default=False, description="Acceptance compares logits.")


def engine_facts(
    use: ModelUse, limits: ResolvedLimits, speculation: Speculation, profile: ReleaseProfile
) -> EngineFacts:
    """Return what the engine's config.json will say.

    Raises:
        ConfigError: the release's engines have no such KV type, or speculation would lose the
            KV reuse that it needs.
    """
    kv_dtype = resolve_kv_dtype(use.kv_dtype, use.spec)
    if kv_dtype not in _KV_ALGORITHMS:
        raise ConfigError(
            f"engines keep no {kv_dtype} KV cache", hint=f"use one of {', '.join(_KV_ALGORITHMS)}"
        )
    paged = _paged_context_fmha(use, kv_dtype, speculation, profile)
    drafted = speculation.draft_length if speculation.mode else 0
    return EngineFacts(
        tp_size=use.tp,
        quant_algo=profile.quantize_formats[use.precision].quant_algo,
        kv_cache_quant_algo=_KV_ALGORITHMS[kv_dtype],
        max_batch_size=limits.max_batch_size,
        max_seq_len=limits.max_seq_len + drafted,
        max_num_tokens=_num_tokens(limits, drafted),
        max_draft_len=drafted,
        speculative_decoding_mode=speculation.mode,
        gather_generation_logits=speculation.logits,
        tokens_per_block=TOKENS_PER_BLOCK,
        use_paged_context_fmha=paged,
        use_fp8_context_fmha=paged and kv_dtype == "fp8",
    )


def builder_changes(limits: ResolvedLimits, facts: EngineFacts) -> Iterator[BuilderChange]:
    """Yield the sizes of the engine that are not those of the deployment."""
    if facts.max_seq_len != limits.max_seq_len:
        yield BuilderChange(
            setting="max_seq_len",
            asked=limits.max_seq_len,
            becomes=facts.max_seq_len,
            reason="the builder adds max_draft_len; a request can use as much as before",
        )
    if facts.max_num_tokens != limits.max_num_tokens:
        step = facts.max_batch_size * (facts.max_draft_len + 1)
        reasons = {
            step: "one step verifies max_batch_size x (max_draft_len + 1) tokens",
            TOKENS_PER_BLOCK: "no less than a KV block",
        }
        yield BuilderChange(
            setting="max_num_tokens",
            asked=limits.max_num_tokens,
            becomes=facts.max_num_tokens,
            reason=reasons.get(facts.max_num_tokens, "no more than max_batch_size x max_seq_len"),
        )


def expected_config(facts: EngineFacts) -> Settings:
    """Return what a built engine's config.json has to say, by dotted place."""
    values = facts.model_dump()
    values["speculative_decoding_mode"] = _MODES[facts.speculative_decoding_mode]
    return {place: values[name] for name, place in _PLACES.items()}


def config_differences(config: Mapping[str, object], expected: EngineFacts) -> Iterator[str]:
    """Yield what a built engine's config.json says otherwise than planned."""
    yield from config_mismatches(config, expected_config(expected))


def _num_tokens(limits: ResolvedLimits, drafted: int) -> int:
    room = limits.max_batch_size * limits.max_seq_len
    packed = max(min(limits.max_num_tokens, room), TOKENS_PER_BLOCK)
    return max(packed, limits.max_batch_size * (drafted + 1)) if drafted else packed


def _paged_context_fmha(
    use: ModelUse, kv_dtype: str, speculation: Speculation, profile: ReleaseProfile
) -> bool:
    """Tell whether the engine can reuse its KV cache.

    A target engine of draft tokens does not start without reuse, and reuse is silently off in an
    engine without paged context FMHA.
    """
    situation = None
    if kv_dtype == "int8":
        situation = "paged_fmha_with_int8_kv"
    elif kv_dtype == "fp8" and use.precision not in _FP8_WORKFLOW:
        situation = "paged_fmha_with_fp8_kv_alone"
    if situation not in profile.builder_rules:
        return True
    if speculation.reuse:
        raise ConfigError(
            f"speculation reuses the KV cache, which engines of TensorRT-LLM {profile.name} "
            f"cannot with {use.precision} weights and a KV cache of {kv_dtype}",
            hint="use a 16-bit KV cache, or fp8 weights with an fp8 KV cache",
        )
    return False
