"""The KV pools of one setting: how many blocks each model gets, and how to ask Triton for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from specdeploy.core.memory.kv import request_blocks
from specdeploy.core.memory.request import KvFractions, MemoryRequest
from specdeploy.core.memory.seats import Use, sizes_of, uses_of
from specdeploy.core.memory.terms import Role

# Digits of a fraction that is written out; it is rounded up, by less than a block.
_FRACTION_DIGITS: Final = 6
# TensorRT-LLM refuses a fraction of 1.
_LARGEST_FRACTION: Final = 0.999999


@dataclass(frozen=True, slots=True)
class Pools:
    """What one setting gives.

    Attributes:
        uses: What each seat holds beside the pools.
        request_blocks: Blocks of one whole request.
        blocks: Blocks that the limit, or the user's fractions, give each model.
        asked: Blocks to ask for: those of ``max_batch_size`` whole requests, where they fit.
        resident: Whole requests held at once.
        holds_all: ``max_batch_size`` of them are, in pools that need not be larger.
        unloaded: The model that finds too little memory after the other's pool, if one does.
    """

    uses: tuple[Use, ...]
    request_blocks: int
    blocks: Mapping[Role, int]
    asked: Mapping[Role, int]
    resident: int
    holds_all: bool = False
    unloaded: Role | None = None

    @property
    def fits(self) -> bool:
        """Both models load, and one whole request fits."""
        return self.resident > 0 and self.unloaded is None


def pools_of(request: MemoryRequest) -> Pools:
    """Return the pools of one setting.

    Raises:
        ConfigError: a draft wider than its target shares the target's GPUs.
    """
    sizes = sizes_of(request)
    uses = tuple(uses_of(request, sizes))
    need = int(request_blocks(sizes, request.tokens_per_block))
    if request.fractions is not None:
        return _by_fractions(request, request.fractions, uses)
    resident = min(int(use.resident) for use in uses)
    blocks = {role: max(count, resident * need) for role, count in _of_equal_capacity(uses).items()}
    wanted = request.max_batch_size * need
    holds_all = resident >= request.max_batch_size
    asked = {role: wanted if holds_all else min(count, wanted) for role, count in blocks.items()}
    return Pools(uses, need, blocks, asked, resident, holds_all)


def load_sequence(request: MemoryRequest) -> tuple[Role, ...]:
    """Return the models in the order in which Triton loads them."""
    if request.pair.draft is None:
        return ("target",)
    if request.load_order == "draft_first":
        return ("draft", "target")
    return ("target", "draft")


def free_after_loading(
    use: Use, order: Sequence[Role], pools: Mapping[Role, int]
) -> dict[Role, int]:
    """Return what is free on a seat's GPUs each time that a model has loaded.

    Args:
        use: The seat.
        order: Models as they load; each takes its pool before the next one loads.
        pools: Blocks of each model's pool; a model that is not there has not taken one yet.
    """
    free = use.seat.memory.usable_bytes - int(use.owned("gpu"))
    found: dict[Role, int] = {}
    for role in order:
        if role in use.blocks:
            free -= int(use.owned(role))
            found[role] = free
            free -= pools.get(role, 0) * int(use.blocks[role])
    return found


def fractions_of(pools: Pools, order: Sequence[Role]) -> dict[Role, float]:
    """Return the fraction of free memory that gives each model the blocks asked for.

    On several GPUs the largest: a model takes the tokens of its fullest GPU on all of them.
    """
    shares: dict[Role, float] = dict.fromkeys(order, 0.0)
    for use in pools.uses:
        for role, free in free_after_loading(use, order, pools.asked).items():
            taken = pools.asked[role] * int(use.blocks[role])
            share = taken / free if free > 0 else 1.0
            shares[role] = max(shares[role], min(_LARGEST_FRACTION, _rounded_up(share)))
    return shares


def _of_equal_capacity(uses: Sequence[Use]) -> dict[Role, int]:
    """Give models that share a GPU pools of equally many blocks."""
    shared = any(len(use.blocks) > 1 for use in uses)
    found: dict[Role, int] = {}
    for use in uses:
        count = int(use.allowed) // max(1, sum(int(size) for size in use.blocks.values()))
        for role in use.blocks:
            found[role] = min(found.get(role, count), count)
    least = min(found.values())
    return dict.fromkeys(found, least) if shared else found


def _by_fractions(request: MemoryRequest, fractions: KvFractions, uses: tuple[Use, ...]) -> Pools:
    """Give each model its fraction of what is free when it has loaded, one after the other."""
    blocks: dict[Role, int] = {}
    unloaded: Role | None = None
    order = load_sequence(request)
    for role in order:
        share = fractions.target if role == "target" else fractions.draft
        rooms = [
            (free_after_loading(use, order, blocks)[role], int(use.blocks[role]))
            for use in uses
            if role in use.blocks
        ]
        if min(free for free, _ in rooms) < 0:
            unloaded = unloaded or role
        blocks[role] = min(int(share * max(0, free)) // max(1, size) for free, size in rooms)
    need = int(request_blocks(sizes_of(request), request.tokens_per_block))
    return Pools(uses, need, blocks, blocks, min(blocks.values()) // need, unloaded=unloaded)


def _rounded_up(share: float) -> float:
    scale = 10**_FRACTION_DIGITS
    return math.ceil(share * scale) / scale
