"""One variant at every point of its grid: memory, time, and why a point is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.acceptance import mixed_table
from specdeploy.core.memory import BINDINGS, MemoryGrid, MemoryRequest, memory_grid
from specdeploy.core.served import ServedPair
from specdeploy.core.speed import Load, SpeedGrid, estimate_speed, speed_grid
from specdeploy.core.tuner.question import Axes, Question
from specdeploy.core.tuner.space import Variant
from specdeploy.units import MS_PER_S

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Codes = NDArray[np.int8]

# Why a point is refused; the first that holds counts. Position 0: it is not.
REASONS: Final = (
    "",
    "the weights do not fit in GPU memory",
    "activations and buffers do not fit beside the weights",
    "no whole request fits in the KV memory",
    "the split of KV memory leaves a pool without room for one request",
    "max_batch_size x (draft_length + 1) is above max_num_tokens",
    "a whole request and its draft are longer than a model's positions",
    "time to first token is above its limit",
    "time per output token is above its limit",
    "time to the last token is above its limit",
    "it does not carry the request rate",
)
_WEIGHTS, _BUFFERS, _REQUEST, _SPLIT, _STEP, _POSITIONS, _TTFT, _TPOT, _E2E, _RATE = range(1, 11)
MEMORY_REASONS: Final = REASONS[_WEIGHTS : _SPLIT + 1]
TOO_LONG: Final = REASONS[_POSITIONS]
_NO_LIMIT: Final = 2**31
_OF_BINDING: Final = {"weights": _WEIGHTS, "buffers": _BUFFERS, "request": _REQUEST}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A variant's grid, of shape draft length x batch x tokens x share x concurrency.

    Attributes:
        variant: What was looked into.
        axes: The values along the grid; draft lengths are only 0 without speculation.
        fixed_bytes: Memory beside the KV cache, on the tightest GPU.
        kv_bytes: KV memory there that the resident requests take.
        resident: Requests that memory holds at once.
        e2e_ms: Mean time of a whole request.
        code: Position in ``REASONS``.
    """

    variant: Variant
    axes: Axes
    fixed_bytes: Whole
    kv_bytes: Whole
    resident: Whole
    e2e_ms: Floats
    code: Codes

    @property
    def size(self) -> int:
        """Points of the grid."""
        return self.code.size


def evaluate(question: Question, variant: Variant, axes: Axes) -> Evaluated:
    """Return memory and time of every point, and why it is refused."""
    own = axes_for(variant, axes)
    k, batch, tokens, share, concurrency = _open(own)
    request = memory_request(question, variant)
    memory = memory_grid(request, batch=batch, draft_length=k, max_num_tokens=tokens)
    resident = _residents(variant, memory, share, batch)
    code = _memory_code(question, variant, memory, resident, (k, batch, tokens))
    e2e, limits = _times(question, variant, own, np.minimum(resident, concurrency[..., -1:]))
    if question.workload.request_rate is not None:
        late = concurrency * MS_PER_S / e2e < question.workload.request_rate
        limits = np.where(late & (limits == 0), _RATE, limits)
    shape = tuple(map(len, _values(own)))
    return Evaluated(
        variant=variant,
        axes=own,
        fixed_bytes=np.broadcast_to(memory.fixed_bytes, shape),
        kv_bytes=np.broadcast_to(memory.request_bytes * resident, shape),
        resident=np.broadcast_to(resident, shape),
        e2e_ms=e2e,
        code=np.where(code, code, limits),
    )


def axes_for(variant: Variant, axes: Axes) -> Axes:
    """Return the axes that make a difference to ``variant``."""
    if variant.candidate.method == "none":
        return replace(axes, draft_length=(0,), draft_share=(0.0,))
    shared = variant.pair.draft is not None and not variant.pair.draft_apart
    # One process has one pool for both models.
    split = shared and variant.pair.through_bls
    return axes if split else replace(axes, draft_share=(0.0,))


def memory_request(question: Question, variant: Variant) -> MemoryRequest:
    """Return what memory is planned for; batch, draft length and tokens are filled in later."""
    load = question.workload
    return MemoryRequest(
        pair=variant.pair,
        gpu=question.memory,
        max_seq_len=load.max_seq_len,
        limit=question.limit,
        context=min(load.max_seq_len, round(load.prompt.mean + load.answer.mean)),
    )


def _values(axes: Axes) -> tuple[tuple[float, ...], ...]:
    return (
        axes.draft_length,
        axes.max_batch_size,
        axes.max_num_tokens,
        axes.draft_share,
        axes.concurrency,
    )


def _open(axes: Axes) -> tuple[Whole, Whole, Whole, Floats, Whole]:
    """Return each axis along a dimension of its own."""
    k, batch, tokens, share, concurrency = np.ix_(*map(np.array, _values(axes)))
    return k, batch, tokens, share, concurrency


def _residents(variant: Variant, memory: MemoryGrid, share: Floats, batch: Whole) -> Whole:
    """Return the requests that memory holds for every split of it between the two pools."""
    equal = np.minimum(memory.max_resident, batch)
    draft = variant.pair.draft
    if draft is None or share.size == 1:
        return equal
    both = variant.pair.target.kv_bytes_per_token + draft.kv_bytes_per_token
    part = draft.kv_bytes_per_token / both
    pool, each = memory.pool_bytes, np.maximum(memory.request_bytes, 1)
    held = np.minimum(pool * share / (each * part), pool * (1 - share) / (each * (1 - part)))
    split = np.minimum(held.astype(np.int64), equal)
    return np.where(share == 0, equal, np.maximum(split, 0))


def _memory_code(
    question: Question,
    variant: Variant,
    memory: MemoryGrid,
    resident: Whole,
    sizes: tuple[Whole, Whole, Whole],
) -> Codes:
    k, batch, tokens = sizes
    draft = variant.pair.draft
    contexts = [
        spec.context_length for spec in (variant.pair.target.spec, draft and draft.spec) if spec
    ]
    room = min(context or _NO_LIMIT for context in contexts)
    code = np.zeros(np.broadcast_shapes(resident.shape, memory.fits.shape), dtype=np.int8)
    code = np.where(resident < 1, _SPLIT, code)
    code = np.where(question.workload.max_seq_len + k > room, _POSITIONS, code)
    code = np.where(batch * (k + 1) > tokens, _STEP, code)
    binding = np.array([_OF_BINDING.get(name, _REQUEST) for name in BINDINGS])
    return np.where(memory.fits, code, binding[memory.binding]).astype(np.int8)


def _times(question: Question, variant: Variant, axes: Axes, inside: Whole) -> tuple[Floats, Codes]:
    """Return milliseconds per request, and which limit they break.

    Time depends on a few numbers of resident requests only: it is computed once for each.
    """
    held, where = np.unique(np.maximum(inside, 1), return_inverse=True)
    k, _, tokens, _, concurrency = _open(axes)
    grid = _speed(question, variant, axes, held.reshape(1, -1, 1, 1, 1))
    shape = (k.size, held.size, tokens.size, 1, concurrency.size)
    e2e_ms = np.broadcast_to(_e2e(question, grid), shape)
    limits = np.broadcast_to(_limit_code(question, variant, grid, e2e_ms), shape)
    rows = where.reshape(inside.shape)
    at = np.ix_(*map(np.arange, (k.size, 1, tokens.size, 1, concurrency.size)))
    index = (at[0], rows, at[2], 0, at[4])
    return e2e_ms[index], limits[index]


def _speed(question: Question, variant: Variant, axes: Axes, resident: Whole) -> SpeedGrid:
    k, _, tokens, _, concurrency = _open(axes)
    mixed = variant.candidate.acceptance
    table = mixed_table(mixed, axes.draft_length[-1]) if mixed else [1.0]
    emitted = np.array([table[length] for length in axes.draft_length]).reshape(k.shape)
    load = question.workload
    # The arithmetic takes an array where the record says one number.
    constants = replace(question.constants, max_num_tokens=cast("float", tokens.astype(float)))
    return speed_grid(
        variant.pair,
        question.gpu,
        Load(concurrency, load.prompt.mean, load.answer.mean, resident=resident),
        draft_length=k,
        tokens_per_step=emitted,
        constants=constants,
    )


def _e2e(question: Question, grid: SpeedGrid) -> Floats:
    return grid.ttft_ms + grid.tpot_ms * (question.workload.answer.mean - 1)


def _limit_code(question: Question, variant: Variant, grid: SpeedGrid, e2e_ms: Floats) -> Codes:
    load, none = question.workload, np.inf
    limits = load.limits
    code = np.zeros(e2e_ms.shape, dtype=np.int8)
    code = np.where(e2e_ms > (limits.e2e_ms or none), _E2E, code)
    if limits.tpot_ms is not None:
        slow = grid.tpot_ms * tail_of_tpot(question, variant)
        code = np.where(slow > limits.tpot_ms, _TPOT, code)
    return np.where(grid.ttft_ms > (limits.ttft_ms or none), _TTFT, code).astype(np.int8)


def tail_of_tpot(question: Question, variant: Variant) -> float:
    """Return the high end of the interval of the time per token, over the time itself.

    Stands for the 95th percentile, which nothing here predicts.
    """
    load = question.workload
    found = estimate_speed(
        ServedPair(variant.pair.target),
        question.gpu,
        Load(load.planned, load.prompt.mean, load.answer.mean),
        draft_length=0,
        tokens_per_step=1.0,
        constants=question.constants,
    )
    return found.intervals["baseline.tpot_ms"].high / found.baseline.tpot_ms
