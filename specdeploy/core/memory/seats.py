"""Which model is on which GPU, and what there is left for KV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from specdeploy.core.memory.kv import block_bytes, kv_shape, request_bytes
from specdeploy.core.memory.request import GpuMemory, MemoryLimit, MemoryRequest
from specdeploy.core.memory.sizes import Sizes, Whole, whole
from specdeploy.core.memory.terms import Engine, Owner, Role, Term, card_terms, engine_terms
from specdeploy.core.memory_records import BINDINGS
from specdeploy.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Seat:
    """GPUs with the same memory that hold the same engines."""

    indexes: tuple[int, ...]
    memory: GpuMemory
    engines: tuple[Engine, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """What each GPU of a seat holds, in one setting or in many.

    Attributes:
        fixed: All that is ours, KV apart.
        budget: What the limit leaves to everything of ours.
        allowed: What it lets the pools take.
        requests: KV of one whole request, by model.
        needed: The same of all models here.
        blocks: KV of one block of a sequence, by model.
        resident: Whole requests that the pools hold.
    """

    seat: Seat
    terms: tuple[Term, ...]
    fixed: Whole
    budget: int
    allowed: Whole
    requests: dict[Role, Whole]
    needed: Whole
    blocks: dict[Role, Whole]
    resident: Whole

    @property
    def missing(self) -> Whole:
        """Bytes that one whole request lacks; 0 or less when it fits."""
        over: Whole = np.maximum(self.fixed - self.budget, 0)
        return self.needed - self.allowed + over

    @property
    def withheld(self) -> Whole:
        """Bytes that the limit keeps free."""
        room: Whole = np.maximum(self.budget - self.fixed, 0)
        return self.seat.memory.usable_bytes - self.budget + room - self.allowed

    @property
    def binding(self) -> Whole:
        """Position in ``BINDINGS`` of what keeps a request off these GPUs; 0: nothing."""
        weights = sum(engine.model.weight_bytes for engine in self.seat.engines)
        bare = weights + int(self.owned("gpu"))
        if bare >= self.budget:
            return whole(BINDINGS.index("weights"))
        over = self.fixed >= self.budget
        lacking = np.where(over, BINDINGS.index("buffers"), BINDINGS.index("request"))
        found: Whole = np.where(self.resident > 0, 0, lacking)
        return found

    def owned(self, owner: Owner) -> Whole:
        """Return what loads with one model, or is on the GPU before any (``gpu``)."""
        return total_of(term.size for term in self.terms if term.owner == owner)


def uses_of(request: MemoryRequest, sizes: Sizes) -> list[Use]:
    """Return what every seat holds.

    Raises:
        ConfigError: a draft wider than its target shares the target's GPUs.
    """
    return [_use(seat, request, sizes) for seat in seats_of(request)]


def sizes_of(request: MemoryRequest) -> Sizes:
    """Return the sizes of one request."""
    return Sizes(
        batch=whole(request.max_batch_size),
        draft_length=whole(request.draft_length),
        max_num_tokens=whole(request.max_num_tokens),
        max_seq_len=whole(request.max_seq_len),
        context=whole(request.max_seq_len if request.context is None else request.context),
    )


def seats_of(request: MemoryRequest) -> list[Seat]:
    """Return the seats, in the order of their first GPU.

    Raises:
        ConfigError: a draft wider than its target shares the target's GPUs.
    """
    pair = request.pair
    if pair.draft is not None and not pair.draft_apart and pair.draft.tp > pair.target.tp:
        raise ConfigError(
            f"a draft on {pair.draft.tp} GPUs cannot share the {pair.target.tp} of its target",
            hint="give the draft at most the target's tp, or GPUs of its own",
        )
    grouped: dict[tuple[GpuMemory, tuple[Role, ...]], list[int]] = {}
    for index, memory in enumerate(request.gpus):
        roles = tuple(engine.role for engine in _engines(request, index))
        grouped.setdefault((memory, roles), []).append(index)
    return [
        Seat(tuple(indexes), memory, tuple(_engines(request, indexes[0])))
        for (memory, _), indexes in grouped.items()
    ]


def total_of(parts: Iterable[Whole]) -> Whole:
    """Add up sizes of any shapes, small ones first."""
    by_shape: dict[tuple[int, ...], Whole] = {}
    for part in parts:
        by_shape[part.shape] = by_shape.get(part.shape, whole(0)) + part
    return sum(sorted(by_shape.values(), key=np.size), start=whole(0))


def budget_of(memory: GpuMemory, limit: MemoryLimit) -> int:
    """Return what the limit leaves to everything of ours on one GPU."""
    if limit.of == "free":
        return memory.usable_bytes
    within = int(limit.share * memory.total_bytes) - memory.held_bytes
    return max(0, min(memory.usable_bytes, within))


def _engines(request: MemoryRequest, index: int) -> Iterator[Engine]:
    pair = request.pair
    first = pair.target.tp if pair.draft_apart else 0
    if index < pair.target.tp:
        yield Engine("target", pair.target)
    if pair.draft is not None and first <= index < first + pair.draft.tp:
        yield Engine("draft", pair.draft)


def _use(seat: Seat, request: MemoryRequest, sizes: Sizes) -> Use:
    terms = list(card_terms(seat.memory, request.workspace))
    requests: dict[Role, Whole] = {}
    blocks: dict[Role, Whole] = {}
    for engine in seat.engines:
        terms.extend(engine_terms(engine, sizes, request))
        shape = kv_shape(engine.model, request.tokens_per_block)
        requests[engine.role] = request_bytes(shape, sizes)
        blocks[engine.role] = block_bytes(shape, sizes)
    fixed = total_of(term.size for term in terms if term.owner != "card")
    budget = budget_of(seat.memory, request.limit)
    allowed = np.maximum(budget - fixed, 0)
    if request.limit.of == "free":
        allowed = (request.limit.share * allowed).astype(np.int64)
    needed = total_of(requests.values())
    return Use(
        seat=seat,
        terms=tuple(terms),
        fixed=fixed,
        budget=budget,
        allowed=allowed,
        requests=requests,
        needed=needed,
        blocks=blocks,
        resident=allowed // np.maximum(needed, 1),
    )
