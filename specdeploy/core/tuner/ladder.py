"""One variant over draft lengths and concurrencies, each a server of its own size.

What the table, the crossover, the break-even acceptance, the flips and the schedule are read
from. Row 0 is a server with no draft loaded, not one that has switched its draft off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specdeploy.core.acceptance import MixedCurve, mixed_table, shift
from specdeploy.core.memory import memory_grid
from specdeploy.core.served import ServedPair
from specdeploy.core.speed import Load, SpeedGrid, speed_grid
from specdeploy.core.tuner.evaluate import Floats, Whole, memory_request
from specdeploy.core.tuner.question import DRAFT_LENGTHS, Question
from specdeploy.core.tuner.space import NO_DRAFT, Variant

_HALVINGS = 14
Side = Literal["under", "over"]
# Steps of acceptance in which flips are looked for.
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Ladder:
    """A speculative variant and its plain counterpart.

    Attributes:
        question: What is asked.
        variant: The pair.
        lengths: Draft lengths, 0 first.
        concurrency: Requests in flight, rising.
        max_num_tokens: Tokens of one forward pass.
        resident: Requests that memory holds, by length and concurrency; row 0 has no draft.
    """

    question: Question
    variant: Variant
    lengths: tuple[int, ...]
    concurrency: tuple[int, ...]
    max_num_tokens: int
    resident: Whole


def build_ladder(
    question: Question, variant: Variant, *, concurrency: Sequence[int], max_num_tokens: int
) -> Ladder:
    """Return the ladder of a variant; at each concurrency the server is sized for it."""
    fixed = question.fixed.draft_length
    lengths = (0, *DRAFT_LENGTHS) if not fixed else (0, fixed)
    if variant.pair.method == "none":
        lengths = (0,)
    batch = np.array(concurrency, dtype=np.int64)
    held = [_held(question, variant, batch, length, max_num_tokens) for length in lengths]
    return Ladder(question, variant, lengths, tuple(concurrency), max_num_tokens, np.stack(held))


def _held(
    question: Question, variant: Variant, batch: Whole, length: int, max_num_tokens: int
) -> Whole:
    served = variant if length else Variant(NO_DRAFT, ServedPair(variant.pair.target), 1)
    request = memory_request(question, served)
    grid = memory_grid(
        request,
        batch=batch,
        draft_length=np.array(length),
        max_num_tokens=np.maximum(max_num_tokens, batch * (length + 1)),
    )
    return np.where(grid.fits, np.minimum(grid.max_resident, batch), 0)


def tokens_of(ladder: Ladder, mixed: MixedCurve) -> Floats:
    """Return the tokens per step of each draft length, as a column."""
    table = mixed_table(mixed, ladder.lengths[-1])
    return np.array([table[length] for length in ladder.lengths])[:, None]


def speeds(ladder: Ladder, tokens: Floats) -> SpeedGrid:
    """Return the speed at every length and concurrency for tokens per step that broadcast."""
    load = ladder.question.workload
    constants = replace(ladder.question.constants, max_num_tokens=float(ladder.max_num_tokens))
    return speed_grid(
        ladder.variant.pair,
        ladder.question.gpu,
        Load(
            np.array(ladder.concurrency),
            load.prompt.mean,
            load.answer.mean,
            resident=np.maximum(ladder.resident, 1),
            resident_plain=np.maximum(ladder.resident[:1], 1),
        ),
        draft_length=np.array(ladder.lengths)[:, None],
        tokens_per_step=tokens,
        constants=constants,
    )


def times(ladder: Ladder, tokens: Floats) -> Floats:
    """Return milliseconds of a whole request; infinite where it does not fit."""
    grid = speeds(ladder, tokens)
    e2e = grid.ttft_ms + grid.tpot_ms * (ladder.question.workload.answer.mean - 1)
    return np.where(ladder.resident > 0, e2e, np.inf)


def best_rows(milliseconds: Floats) -> Whole:
    """Return the row of the least time in each column; the first of equals."""
    rows: Whole = milliseconds.argmin(axis=0)
    return rows


def crossover(ladder: Ladder, mixed: MixedCurve) -> int | None:
    """Return the fewest requests in flight from which on no draft is better; None: there is none.

    Speculation that pays again at a larger number counts as paying.
    """
    pays = best_rows(times(ladder, tokens_of(ladder, mixed))) > 0
    last = int(np.flatnonzero(pays)[-1]) if pays.any() else -1
    return ladder.concurrency[last + 1] if last + 1 < len(ladder.concurrency) else None


def break_even(ladder: Ladder) -> list[float | None]:
    """Return the least acceptance with which some draft length pays, by concurrency.

    The same at every position; bisection, because more acceptance never makes a request slower.
    None: not even an acceptance of 1 pays.
    """
    powers = np.array(ladder.lengths)[:, None]
    low, high = np.zeros(len(ladder.concurrency)), np.ones(len(ladder.concurrency))
    never = ~_pays(ladder, _flat_tokens(powers, high))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        pays = _pays(ladder, _flat_tokens(powers, middle))
        low, high = np.where(pays, low, middle), np.where(pays, middle, high)
    return [None if none else float(a) for a, none in zip(high, never, strict=True)]


def _flat_tokens(lengths: Whole, acceptance: ArrayLike) -> Floats:
    """Return tokens per step of one acceptance at every position: lengths x acceptances."""
    powers = np.asarray(acceptance) ** np.arange(int(lengths.max()) + 1)[:, None]
    sums: Floats = np.cumsum(powers, axis=0)[lengths[:, 0]]
    return sums


def _pays(ladder: Ladder, tokens: Floats) -> NDArray[np.bool_]:
    milliseconds = times(ladder, tokens)
    pays: NDArray[np.bool_] = milliseconds[1:].min(axis=0, initial=np.inf) < milliseconds[0]
    return pays


@dataclass(frozen=True, slots=True)
class Flip:
    """The choice changes to ``draft_length`` where an acceptance goes ``side`` a value."""

    side: Side
    acceptance: float
    draft_length: int


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What one kind of request does to the choice.

    Attributes:
        category: The kind, or ``all``.
        acceptance: What it is now, as one number for every position.
        low: The low end of its interval.
        high: The high end.
        flips: Where the best draft length changes, nearest first.
        regret: Share of time lost by keeping the choice, at the worst place of the interval.
    """

    category: str
    acceptance: float
    low: float
    high: float
    flips: tuple[Flip, ...]
    regret: float


def sensitivity(
    ladder: Ladder, mixed: MixedCurve, category: str, *, chosen: int, now: Sequence[float]
) -> Sensitivity:
    """Return how the best draft length moves with the acceptance of one kind of request.

    Args:
        ladder: Of one concurrency.
        mixed: Acceptance as it is believed to be.
        category: The kind of request whose acceptance moves.
        chosen: The draft length that was chosen.
        now: Its acceptance, and the ends of its interval.
    """
    grid = np.linspace(0, 1, _STEPS + 1)
    rows = [tokens_of(ladder, shift(mixed, category, float(a)))[:, 0] for a in grid]
    many = replace(
        ladder,
        concurrency=ladder.concurrency * len(grid),
        resident=np.repeat(ladder.resident, len(grid), axis=1),
    )
    milliseconds = times(many, np.stack(rows, axis=1))
    middle, low, high = now
    inside = (grid >= low - 0.5 / _STEPS) & (grid <= high + 0.5 / _STEPS)
    kept = milliseconds[ladder.lengths.index(chosen)]
    counted = inside & np.isfinite(kept)
    lost = kept[counted] / milliseconds.min(axis=0)[counted] - 1
    start = int(np.abs(grid - middle).argmin())
    flips = [
        *_flips(ladder.lengths, milliseconds[:, start::-1], grid[start::-1], "under"),
        *_flips(ladder.lengths, milliseconds[:, start:], grid[start:], "over"),
    ]
    return Sensitivity(category, middle, low, high, tuple(flips), float(lost.max(initial=0.0)))


def _flips(
    lengths: Sequence[int], milliseconds: Floats, grid: Floats, side: Side
) -> Iterator[Flip]:
    """Yield the changes met when walking along ``grid``; between two points times are lines."""
    best = best_rows(milliseconds)
    for at in range(1, len(grid)):
        old, new = best[at - 1], best[at]
        if old == new:
            continue
        before, after = milliseconds[old, at - 1 : at + 1] - milliseconds[new, at - 1 : at + 1]
        share = before / (before - after) if np.isfinite(before - after) else 0.0
        meeting = grid[at - 1] + share * (grid[at] - grid[at - 1])
        yield Flip(side, round(float(meeting), 3), lengths[new])
