"""One GPU's memory as lines that add up to the card."""

from __future__ import annotations

from specdeploy.core.memory.pools import Pools
from specdeploy.core.memory.request import MemoryRequest
from specdeploy.core.memory.seats import Use
from specdeploy.core.memory.terms import Role
from specdeploy.core.memory_records import GpuLedger, MemoryComponent


def ledgers_of(request: MemoryRequest, pools: Pools) -> list[GpuLedger]:
    """Return every GPU's ledger, in the order of the GPUs."""
    found = [
        _ledger(index, use, request, pools) for use in pools.uses for index in use.seat.indexes
    ]
    return sorted(found, key=lambda ledger: ledger.index)


def _ledger(index: int, use: Use, request: MemoryRequest, pools: Pools) -> GpuLedger:
    parts = [
        MemoryComponent(name=term.name, bytes=int(term.size), formula=term.formula)
        for term in use.terms
    ]
    parts += [_pool(role, use, request, pools) for role in use.blocks]
    capacity = use.seat.memory.total_bytes
    parts.append(_reserve(use, request, pools, left=capacity - sum(part.bytes for part in parts)))
    total = sum(part.bytes for part in parts)
    return GpuLedger(
        index=index,
        components=parts,
        total_bytes=total,
        capacity_bytes=capacity,
        headroom_bytes=capacity - total,
    )


def _pool(role: Role, use: Use, request: MemoryRequest, pools: Pools) -> MemoryComponent:
    """Return a KV pool: of all requests, else what it may take, and at least one request."""
    name, one = f"{role} KV pool", int(use.requests[role])
    if pools.holds_all:
        batch = request.max_batch_size
        formula = f"{batch:,} requests x {one:,} B, {pools.request_blocks:,} blocks each"
        return MemoryComponent(name=name, bytes=batch * one, formula=formula)
    block = int(use.blocks[role])
    if pools.asked[role] * block < one:
        formula = f"one request of {pools.request_blocks:,} blocks, which is not there"
        return MemoryComponent(name=name, bytes=one, formula=formula)
    formula = f"{pools.asked[role]:,} blocks of {request.tokens_per_block} tokens x {block:,} B"
    return MemoryComponent(name=name, bytes=pools.asked[role] * block, formula=formula)


def _reserve(use: Use, request: MemoryRequest, pools: Pools, *, left: int) -> MemoryComponent:
    """Return what stays free: by the limit, and, where requests wait, for want of a block."""
    if request.fractions is not None:
        formula = "what the given fractions leave"
        return MemoryComponent(name="reserve", bytes=max(0, left), formula=formula)
    kept = int(use.withheld)
    formula = f"kept free by the limit of {request.limit}"
    if not pools.holds_all and left > kept:
        kept, formula = left, f"{formula}, and less than the fullest GPU's next block"
    return MemoryComponent(name="reserve", bytes=kept, formula=formula)
