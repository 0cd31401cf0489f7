"""What would fit, when a plan does not: one change if one is enough, computed and checked."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from specdeploy.core.kv_cache import KV_BITS, kv_bytes_per_token
from specdeploy.core.memory.pools import pools_of
from specdeploy.core.memory.request import GpuMemory, MemoryLimit, MemoryRequest
from specdeploy.core.memory.seats import Use, sizes_of, uses_of
from specdeploy.core.memory_records import Change, MemorySuggestion
from specdeploy.core.precision import find_precision, weight_bytes
from specdeploy.core.served import ServedModel, ServedPair
from specdeploy.errors import ConfigError

_KV_TYPE: Final = "fp8"
_PRECISIONS: Final = ("fp8", "int4_awq")
_MOST_GPUS: Final = 16
# The largest share of memory that is suggested: the rest is for what no plan knows.
_LARGEST_SHARE: Final = 0.98
_SHARE_STEPS: Final = 10_000
_LEAST_TOKENS: Final = 256
_NO_LIMIT: Final = 2**24


@dataclass(frozen=True, slots=True)
class Candidate:
    """A changed request, which may fit or not."""

    change: Change
    value: int | float | str
    message: str
    request: MemoryRequest


def suggestions_for(request: MemoryRequest, largest: int) -> list[MemorySuggestion]:
    """Return the changes with which ``request`` fits.

    Args:
        request: One that does not fit.
        largest: The longest context that does, or 0.
    """
    return _checked(_candidates(request, largest)) or _checked(_two_changes(request))


def largest_context(request: MemoryRequest) -> int:
    """Return the longest prompt + output of which one request fits; 0: none does.

    No longer than the models' positions: the target's less the k draft tokens, and the draft's.
    """
    pair, upper = request.pair, _NO_LIMIT
    if pair.target.spec.context_length:
        upper = pair.target.spec.context_length - request.draft_length
    if pair.draft is not None and pair.draft.spec.context_length:
        upper = min(upper, pair.draft.spec.context_length)
    return _largest(1, upper, lambda length: _of_context(request, length))


def _checked(candidates: Iterable[Candidate]) -> list[MemorySuggestion]:
    """Return the first candidate of each kind that fits."""
    found: dict[Change, MemorySuggestion] = {}
    for candidate in candidates:
        if candidate.change in found:
            continue
        pools = pools_of(candidate.request)
        if pools.fits:
            found[candidate.change] = MemorySuggestion(
                change=candidate.change,
                value=candidate.value,
                message=candidate.message,
                max_resident=pools.resident,
            )
    return list(found.values())


def _two_changes(request: MemoryRequest) -> Iterator[Candidate]:
    """Yield quantized weights on more GPUs, for what no one change makes fit."""
    for smaller in _precision(request):
        for wider in _gpus(smaller.request):
            text = f"{smaller.message}, and {wider.message}"
            yield replace(wider, message=text)


def _candidates(request: MemoryRequest, largest: int) -> Iterator[Candidate]:
    if request.fractions is not None:
        text = "let both pools hold equally many tokens, instead of a fraction each"
        yield Candidate("fractions", "equal tokens", text, replace(request, fractions=None))
    if largest:
        text = f"lower max_seq_len to {largest:,}"
        yield Candidate("context", largest, text, _of_context(request, largest))
    for make in (_limit, _kv_type, _draft, _batch, _max_num_tokens, _precision, _gpus):
        yield from make(request)


def _limit(request: MemoryRequest) -> Iterator[Candidate]:
    """Yield the smallest share with which one request fits."""
    shares = [_share(use, request.limit) for use in uses_of(request, sizes_of(request))]
    share = math.ceil(max(shares) * _SHARE_STEPS) / _SHARE_STEPS
    if request.fractions is None and request.limit.share < share <= _LARGEST_SHARE:
        limit = MemoryLimit(request.limit.of, share)
        text = f"raise the memory limit to {limit}"
        yield Candidate("memory_limit", share, text, replace(request, limit=limit))


def _share(use: Use, limit: MemoryLimit) -> float:
    if limit.of == "free":
        return int(use.needed) / max(1, use.budget - int(use.fixed))
    held = use.seat.memory.held_bytes
    return (int(use.fixed) + int(use.needed) + held) / use.seat.memory.total_bytes


def _kv_type(request: MemoryRequest) -> Iterator[Candidate]:
    pair = request.pair
    models = [pair.target] + ([pair.draft] if pair.draft else [])
    if max(KV_BITS[model.kv_dtype] for model in models) > KV_BITS[_KV_TYPE]:
        draft = _keeping_kv(pair.draft, _KV_TYPE) if pair.draft else None
        changed = replace(pair, target=_keeping_kv(pair.target, _KV_TYPE), draft=draft)
        text = f"keep the KV cache in {_KV_TYPE}"
        yield Candidate("kv_dtype", _KV_TYPE, text, replace(request, pair=changed))


def _draft(request: MemoryRequest) -> Iterator[Candidate]:
    """Yield a smaller draft, one on GPUs of its own, and none."""
    pair, draft = request.pair, request.pair.draft
    if draft is None:
        return

    def with_weights(size: int) -> MemoryRequest:
        smaller = replace(draft, weight_bytes=size)
        return replace(request, pair=replace(pair, draft=smaller))

    size = _largest(1, draft.weight_bytes - 1, with_weights)
    if size:
        text = f"take a draft of at most {size:,} bytes of weights per GPU"
        yield Candidate("draft", size, text, with_weights(size))
    if not pair.draft_apart:
        gpus = (*request.gpus, *(_smallest(request),) * draft.tp)
        apart = replace(request, pair=replace(pair, draft_apart=True), gpu=gpus)
        text = f"put the draft on {_count(draft.tp)} of its own"
        yield Candidate("draft_gpu", draft.tp, text, apart)
    alone = replace(
        request, pair=ServedPair(pair.target), gpu=request.gpus[: pair.target.tp], draft_length=0
    )
    yield Candidate("no_draft", "none", "serve without a draft", alone)


def _batch(request: MemoryRequest) -> Iterator[Candidate]:
    def with_batch(size: int) -> MemoryRequest:
        return replace(request, max_batch_size=size)

    size = _largest(1, request.max_batch_size - 1, with_batch)
    if size:
        text = f"lower max_batch_size to {size:,}"
        yield Candidate("batch", size, text, with_batch(size))


def _max_num_tokens(request: MemoryRequest) -> Iterator[Candidate]:
    def with_tokens(count: int) -> MemoryRequest:
        return replace(request, max_num_tokens=count)

    count = _largest(_LEAST_TOKENS, request.max_num_tokens - 1, with_tokens)
    if count:
        text = f"lower max_num_tokens to {count:,}"
        yield Candidate("max_num_tokens", count, text, with_tokens(count))


def _precision(request: MemoryRequest) -> Iterator[Candidate]:
    target = request.pair.target
    for name in _PRECISIONS:
        form = find_precision(name)
        size = -(-weight_bytes(target.spec, form) // target.tp)
        if size < target.weight_bytes:
            changed = replace(target, precision=form, weight_bytes=size)
            pair = replace(request.pair, target=changed)
            text = f"quantize the target's weights to {name}"
            yield Candidate("precision", name, text, replace(request, pair=pair))


def _gpus(request: MemoryRequest) -> Iterator[Candidate]:
    """Yield the target on twice its GPUs, and so on, where its heads can be spread so."""
    pair = request.pair
    count = 2 * pair.target.tp
    while count <= _MOST_GPUS and pair.target.spec.attention_heads % count == 0:
        try:
            target = _spread(pair.target, count)
        except ConfigError:
            return
        extra = len(request.gpus) - pair.target.tp
        changed = replace(
            request,
            pair=replace(pair, target=target),
            gpu=(_smallest(request),) * (count + extra),
        )
        yield Candidate("gpus", count, f"spread the target over {_count(count)}", changed)
        count *= 2


def _keeping_kv(model: ServedModel, kv_dtype: str) -> ServedModel:
    """Return a model with a KV cache of at most this type's bits."""
    if KV_BITS[model.kv_dtype] <= KV_BITS[kv_dtype]:
        return model
    part = KV_BITS[model.kv_dtype] // KV_BITS[kv_dtype]
    return replace(
        model,
        kv_dtype=kv_dtype,
        kv_bytes_per_token=-(-model.kv_bytes_per_token // part),
        kv_bytes_per_token_full=-(-model.kv_bytes_per_token_full // part),
    )


def _spread(model: ServedModel, tp: int) -> ServedModel:
    """Return a model on ``tp`` GPUs.

    Raises:
        ConfigError: its KV heads cannot be spread so.
    """
    layers, kv_dtype = model.spec.kv_layers, model.kv_dtype
    full = kv_bytes_per_token(layers, kv_dtype=kv_dtype, tp=tp, beyond_window=True)
    return replace(
        model,
        tp=tp,
        weight_bytes=-(-model.weight_bytes * model.tp // tp),
        kv_bytes_per_token=kv_bytes_per_token(layers, kv_dtype=kv_dtype, tp=tp),
        kv_bytes_per_token_full=full,
        state_bytes_per_sequence=-(-model.state_bytes_per_sequence * model.tp // tp),
    )


def _of_context(request: MemoryRequest, length: int) -> MemoryRequest:
    return replace(request, max_seq_len=length, context=None)


def _largest(least: int, most: int, make: Callable[[int], MemoryRequest]) -> int:
    """Return the largest number of which the request made fits, or 0; smaller ones fit too."""
    if most < least or not pools_of(make(least)).fits:
        return 0
    numbers = range(least, most + 1)
    return least - 1 + bisect_left(numbers, 1, key=lambda n: int(not pools_of(make(n)).fits))


def _smallest(request: MemoryRequest) -> GpuMemory:
    return min(request.gpus, key=lambda memory: memory.usable_bytes)


def _count(gpus: int) -> str:
    return "a GPU" if gpus == 1 else f"{gpus} GPUs"
