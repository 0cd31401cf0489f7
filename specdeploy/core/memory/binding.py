"""What stops a larger plan, in words."""

from __future__ import annotations

from collections.abc import Sequence

from specdeploy.core.memory.pools import Pools, load_sequence
from specdeploy.core.memory.request import MemoryRequest
from specdeploy.core.memory.seats import Use
from specdeploy.core.memory.terms import Role
from specdeploy.core.memory_records import BINDINGS, Binding, BindingConstraint


def binding_of(request: MemoryRequest, pools: Pools) -> BindingConstraint:
    """Return the constraint of one setting, on the GPU with the least room."""
    if pools.unloaded is not None:
        return _unloaded(request, pools, pools.unloaded)
    if pools.resident > 0:
        return _fitting(request, pools)
    use = max(pools.uses, key=lambda use: (int(use.binding), int(use.missing)))
    constraint = "request" if request.fractions else BINDINGS[int(use.binding)]
    return BindingConstraint(
        constraint=constraint,
        gpu=use.seat.indexes[0],
        missing_bytes=max(0, int(use.missing)),
        message=f"GPU {use.seat.indexes[0]}: {_lack(constraint, use, request, pools)}",
    )


def _fitting(request: MemoryRequest, pools: Pools) -> BindingConstraint:
    use = min(pools.uses, key=lambda use: (int(use.resident), -int(use.missing)))
    gpu, wanted = use.seat.indexes[0], request.max_batch_size
    if pools.resident >= wanted:
        message = f"all {wanted:,} requests are held at once"
        return BindingConstraint(constraint="none", gpu=gpu, message=message)
    message = (
        f"GPU {gpu}: the KV pool holds {pools.resident:,} of {wanted:,} whole requests; "
        "the others wait"
    )
    return BindingConstraint(constraint="batch", gpu=gpu, message=message)


def _lack(constraint: Binding, use: Use, request: MemoryRequest, pools: Pools) -> str:
    weights = sum(engine.model.weight_bytes for engine in use.seat.engines)
    if constraint == "weights":
        return (
            f"the weights take {weights:,} bytes and the CUDA context {int(use.owned('gpu')):,}; "
            f"{use.budget:,} are there"
        )
    if constraint == "buffers":
        return (
            f"activations and buffers take {int(use.fixed) - weights:,} bytes; "
            f"{use.budget - weights:,} are left beside the weights"
        )
    tokens = min(pools.blocks.values()) * request.tokens_per_block
    return (
        f"one request takes {int(use.needed):,} bytes of KV cache "
        f"({pools.request_blocks * request.tokens_per_block:,} tokens, k and whole blocks "
        f"included); {int(use.allowed):,} are left ({tokens:,} tokens)"
    )


def _unloaded(request: MemoryRequest, pools: Pools, role: Role) -> BindingConstraint:
    """Return the failure of a model to load, after the other has taken its pool or before."""
    order = load_sequence(request)
    before = order[: order.index(role)]
    rooms = [(use, _room(use, before, pools)) for use in pools.uses if role in use.blocks]
    use, room = max(rooms, key=lambda found: int(found[0].owned(role)) - found[1])
    gpu, need = use.seat.indexes[0], int(use.owned(role))
    when = "".join(f" after the {other} and its pool" for other in before)
    return BindingConstraint(
        constraint="weights",
        gpu=gpu,
        missing_bytes=need - room,
        message=f"GPU {gpu}: the {role} takes {need:,} bytes when it loads; "
        f"{max(0, room):,} are free{when}",
    )


def _room(use: Use, before: Sequence[Role], pools: Pools) -> int:
    """Return what is free when the models ``before`` have loaded and taken their pools."""
    room = use.seat.memory.usable_bytes - int(use.owned("gpu"))
    for role in before:
        if role in use.blocks:
            room -= int(use.owned(role)) + pools.blocks[role] * int(use.blocks[role])
    return room
