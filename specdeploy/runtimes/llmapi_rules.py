"""What TensorRT-LLM's LLM API cannot do together, and why.

Each refusal is one that the library makes at load, or would make silently by doing something
else than what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specdeploy.core.deployment import ModelUse
from specdeploy.core.models import PRECISION_OF_DTYPE, ModelSpec
from specdeploy.errors import ConfigError
from specdeploy.runtimes.llmapi_question import HOST_DRAFTERS, LlmQuestion
from specdeploy.runtimes.llmapi_speculation import require_lossless_sampling

# Tokens of a prompt that a pass must have room for beside full generation.
PREFILL_ROOM: Final = 64
# GPUs on which latent (MLA) attention reuses KV blocks and reads prompts in chunks.
_LATENT_SMS: Final = frozenset({90, 100, 103, 120, 121})
_SERVED: Final = ("bf16", "fp16")
_OWN_KV: Final = ("auto", *_SERVED)
_QUANTIZED_KV: Final = ("fp8", "nvfp4")


def require_servable(asked: LlmQuestion) -> None:
    """Refuse what the release cannot serve.

    Raises:
        ConfigError: names the setting, the reason and what to change.
    """
    _require_precision(asked)
    _require_kv_type(asked)
    _require_room(asked)
    if asked.speculation is None:
        return
    _require_one_stage(asked)
    _require_one_engine(asked)
    require_lossless_sampling(asked)


def least_tokens(asked: LlmQuestion) -> int:
    """Return the tokens of a pass in which every request generates."""
    each = asked.speculation.tokens_per_step if asked.speculation else 1
    return asked.deployment.limits.max_batch_size * each


def reuses_blocks(asked: LlmQuestion) -> bool:
    """Tell whether KV blocks are reused; the library turns it off without a word elsewhere."""
    return asked.deployment.llmapi.block_reuse and not _latent_on_other_gpu(asked)


def runs_overlapped(asked: LlmQuestion) -> bool:
    """Return whether the overlap scheduler runs.

    Raises:
        ConfigError: it was asked for, and the drafter cannot run under it.
    """
    wanted = asked.deployment.llmapi.overlap_scheduler
    reason = _no_overlap(asked)
    if wanted == "auto" or not reason:
        return not reason and wanted is not False
    if wanted:
        raise ConfigError(
            f"llmapi.overlap_scheduler is true, and {reason}",
            hint="leave llmapi.overlap_scheduler at auto",
        )
    return False


def rule_notes(asked: LlmQuestion) -> Iterator[str]:
    """Yield what a rule changed or could not look at."""
    latent = _is_latent(asked.deployment.target.spec)
    if latent and asked.sm is None:
        yield (
            "the GPU is not named (hardware.gpu): latent attention reuses KV blocks on SM "
            f"{_latent_sms()} only"
        )
    if _latent_on_other_gpu(asked) and asked.deployment.llmapi.block_reuse:
        yield f"KV blocks are not reused: latent attention does that on SM {_latent_sms()} only"
    reason = _no_overlap(asked)
    if reason:
        yield f"the overlap scheduler is off: {reason}"


def _no_overlap(asked: LlmQuestion) -> str:
    if asked.speculation is None:
        return ""
    if asked.speculation.method in HOST_DRAFTERS:
        return f"{asked.speculation.method} drafts on the host, between two steps"
    if not asked.drafter_inside:
        return "a draft beside the target verifies sampled requests greedily under it"
    return ""


def _require_precision(asked: LlmQuestion) -> None:
    target = asked.deployment.target
    if target.spec.quantization is None and target.precision not in _SERVED:
        stored = PRECISION_OF_DTYPE.get(target.spec.dtype, target.spec.dtype)
        raise ConfigError(
            f"target.precision is {target.precision}, and the LLM API serves {stored} weights "
            f"that are not quantized as {' or '.join(_SERVED)}",
            hint="quantize the checkpoint first (ModelOpt), or set target.precision bf16",
        )
    known = asked.profile.precisions.get(_stored_precision(target))
    if known and asked.sm is not None and known.llmapi and asked.sm not in known.llmapi:
        raise ConfigError(
            f"the target's weights are {_stored_precision(target)}, which the LLM API of "
            f"TensorRT-LLM {asked.version} does not run on SM {asked.sm}",
            hint=f"it does on SM {', '.join(map(str, known.llmapi))}",
        )


def _stored_precision(use: ModelUse) -> str:
    return use.spec.quantization.method if use.spec.quantization else use.precision


def _require_kv_type(asked: LlmQuestion) -> None:
    target, draft = asked.deployment.target, asked.deployment.draft
    if target.kv_dtype not in {*_OWN_KV, *_QUANTIZED_KV}:
        raise ConfigError(
            f"target.kv_dtype is {target.kv_dtype}, which the LLM API does not have",
            hint=f"it has auto, {', '.join(_QUANTIZED_KV)}",
        )
    if asked.speculation is None or draft is None:
        return
    if draft.kv_dtype not in {"auto", target.kv_dtype}:
        raise ConfigError(
            f"draft.kv_dtype is {draft.kv_dtype} and target.kv_dtype {target.kv_dtype}: one "
            "kv_cache_config holds for both",
            hint="leave draft.kv_dtype out",
        )


def _require_room(asked: LlmQuestion) -> None:
    limits, least = asked.deployment.limits, least_tokens(asked)
    if limits.max_num_tokens < least + PREFILL_ROOM:
        each = least // limits.max_batch_size
        raise ConfigError(
            f"max_num_tokens {limits.max_num_tokens} has no room for a prompt beside "
            f"{limits.max_batch_size} requests of {each} tokens each",
            hint=f"limits.max_num_tokens must be at least {least + PREFILL_ROOM}",
        )
    whole = limits.max_num_tokens >= least + limits.max_seq_len
    if not whole and _latent_on_other_gpu(asked):
        raise ConfigError(
            f"max_num_tokens {limits.max_num_tokens} makes long prompts come in chunks, which "
            f"latent attention does on SM {_latent_sms()} only",
            hint=f"set limits.max_num_tokens {least + limits.max_seq_len}",
        )


def _require_one_stage(asked: LlmQuestion) -> None:
    pp = asked.deployment.llmapi.pp
    if pp > 1:
        raise ConfigError(
            f"llmapi.pp is {pp}, and no method speculates over pipeline stages: drafts are "
            "verified where the whole model is",
            hint=f"use target.tp {asked.deployment.target.tp * pp} in its place, or method none",
        )


def _require_one_engine(asked: LlmQuestion) -> None:
    target, draft = asked.deployment.target, asked.deployment.draft
    if draft is not None and draft.tp not in {1, target.tp}:
        raise ConfigError(
            f"draft.tp is {draft.tp}, and the draft runs in the target's ranks (target.tp "
            f"{target.tp})",
            hint="leave draft.tp out",
        )


def _latent_on_other_gpu(asked: LlmQuestion) -> bool:
    sm = asked.sm
    return sm is not None and sm not in _LATENT_SMS and _is_latent(asked.deployment.target.spec)


def _is_latent(spec: ModelSpec) -> bool:
    """Tell whether keys and values are kept as one latent head (MLA)."""
    widths = [group.width for group in spec.kv_layers]
    return any(w.kv_heads == 1 and w.values_per_head != 2 * spec.head_dim for w in widths)


def _latent_sms() -> str:
    return ", ".join(map(str, sorted(_LATENT_SMS)))
