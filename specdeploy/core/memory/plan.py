"""The memory plan of one request, line by line."""

from __future__ import annotations

from collections.abc import Iterator

from specdeploy.core.kv_cache import KV_BITS
from specdeploy.core.memory.binding import binding_of
from specdeploy.core.memory.ledger import ledgers_of
from specdeploy.core.memory.pools import Pools, fractions_of, load_sequence, pools_of
from specdeploy.core.memory.request import MemoryRequest
from specdeploy.core.memory.suggest import largest_context, suggestions_for
from specdeploy.core.memory.terms import Role
from specdeploy.core.memory_records import MemoryPlan, PoolPlan
from specdeploy.core.served import ServedModel


def plan_memory(request: MemoryRequest) -> MemoryPlan:
    """Return where the memory goes, what fits, and, when it does not, what would.

    Raises:
        ConfigError: a draft wider than its target shares the target's GPUs.
    """
    pools = pools_of(request)
    largest = largest_context(request)
    draft = request.pair.draft
    return MemoryPlan(
        fits=pools.fits,
        max_resident=pools.resident if pools.fits else 0,
        largest_context=largest,
        limit=str(request.limit),
        load_order=request.load_order,
        gpus=ledgers_of(request, pools),
        target=_pool("target", request.pair.target, request, pools),
        draft=_pool("draft", draft, request, pools) if draft else None,
        binding=binding_of(request, pools),
        suggestions=[] if pools.fits else suggestions_for(request, largest),
        notes=list(_notes(request)),
    )


def _pool(role: Role, model: ServedModel, request: MemoryRequest, pools: Pools) -> PoolPlan:
    use = next(use for use in pools.uses if role in use.requests)
    given = request.fractions
    fractions = fractions_of(pools, load_sequence(request))
    if given is not None:
        fractions = {"target": given.target, "draft": given.draft}
    return PoolPlan(
        bytes_per_token=model.kv_bytes_per_token,
        request_bytes=int(use.requests[role]),
        request_blocks=pools.request_blocks,
        tokens=pools.blocks[role] * request.tokens_per_block,
        max_tokens_in_paged_kv_cache=pools.asked[role] * request.tokens_per_block,
        kv_cache_free_gpu_mem_fraction=fractions[role],
    )


def _notes(request: MemoryRequest) -> Iterator[str]:
    pair = request.pair
    rows = request.max_batch_size * (request.draft_length + 1)
    if rows > request.max_num_tokens:
        yield (
            f"{rows:,} rows of one step (batch x (k + 1)) are planned for; "
            f"an engine of max_num_tokens {request.max_num_tokens:,} cannot verify them at once"
        )
    models = [("target", pair.target)] + ([("draft", pair.draft)] if pair.draft else [])
    for role, model in models:
        yield from _model_notes(role, model)
    if pair.draft is not None and not pair.draft_apart and pair.draft.tp < pair.target.tp:
        yield "the draft is on the first GPUs of the target, which hold more than the others"


def _model_notes(role: str, model: ServedModel) -> Iterator[str]:
    if model.kv_bytes_per_token_full < model.kv_bytes_per_token:
        yield (
            f"{role}: layers with a window keep no more than it; a runtime with one pool for all "
            "layers keeps every token of them"
        )
    if model.state_bytes_per_sequence:
        yield f"{role}: linear-attention layers keep a fixed state per request"
    if KV_BITS[model.kv_dtype] < KV_BITS["fp8"]:
        yield f"{role}: the block scales of a 4-bit KV cache (1/16 byte per value) are not counted"
