"""The exhaustive search: the best point, the frontier, and why every other point lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from specdeploy.core.config import Objective
from specdeploy.core.tuner.evaluate import REASONS, Evaluated, axes_for, evaluate
from specdeploy.core.tuner.question import Axes, Question, axes_of
from specdeploy.core.tuner.space import Variant, variants
from specdeploy.units import MS_PER_S

SLOWER: Final = "it fits, and another point is better"


@dataclass(frozen=True, slots=True)
class Point:
    """One feasible combination of every setting.

    Attributes:
        variant: Models, GPUs and placement.
        draft_length: 0 without speculation.
        max_batch_size: Requests held at once.
        max_num_tokens: Tokens of one forward pass.
        draft_share: Share of the KV memory for the draft's pool; 0: equal token capacity.
        concurrency: Requests in flight.
        resident: Those that memory holds at once.
        e2e_ms: Mean time of a request.
        memory_bytes: On the tightest GPU.
    """

    variant: Variant
    draft_length: int
    max_batch_size: int
    max_num_tokens: int
    draft_share: float
    concurrency: int
    resident: int
    e2e_ms: float
    memory_bytes: int

    @property
    def requests_per_s(self) -> float:
        """Requests answered per second."""
        return self.concurrency * MS_PER_S / self.e2e_ms

    @property
    def gpu_s_per_request(self) -> float:
        """What a request costs."""
        return self.variant.gpus / self.requests_per_s


@dataclass(frozen=True, slots=True)
class Found:
    """What the search found.

    Attributes:
        best: The chosen point; None when nothing is feasible.
        plain: The best point without a draft loaded.
        speculative: The best point with one.
        frontier: Points that no other beats in time, cost and rate at once, fastest first.
        combinations: All that were looked into.
        rejected: How many lost, by reason.
    """

    best: Point | None
    plain: Point | None
    speculative: Point | None
    frontier: tuple[Point, ...]
    combinations: int
    rejected: dict[str, int]


def search(question: Question, axes: Axes | None = None) -> Found:
    """Look into every combination of every variant.

    Raises:
        ConfigError: the target cannot be served so at any tensor parallelism.
    """
    grid = axes or axes_of(question)
    points: list[Point] = []
    rejected: Counter[str] = Counter()
    for variant in variants(question):
        if variant.refused is not None:
            rejected[variant.refused] += _size(axes_for(variant, grid))
            continue
        evaluated = evaluate(question, variant, grid)
        rejected.update(_counted(evaluated))
        points.extend(_fastest(evaluated))
    combinations = rejected.total()
    best = best_of(points, question.objective)
    rejected[SLOWER] -= best is not None
    return Found(
        best=best,
        plain=best_of([p for p in points if not p.draft_length], question.objective),
        speculative=best_of([p for p in points if p.draft_length], question.objective),
        frontier=frontier(points),
        combinations=combinations,
        rejected={reason: count for reason, count in sorted(rejected.items()) if count},
    )


def best_of(points: Iterable[Point], objective: Objective) -> Point | None:
    """Return the best point; among equals the cheaper or faster one, then the shorter draft."""

    def worth(point: Point) -> tuple[object, ...]:
        time, cost = point.e2e_ms, point.gpu_s_per_request
        first = {"latency": time, "throughput": -point.requests_per_s, "cost": cost}[objective]
        return first, time, cost, *tie_break(point)

    return min(points, key=worth, default=None)


def tie_break(point: Point) -> tuple[object, ...]:
    """Order points of equal time and cost: the shorter draft, then the smaller server."""
    return (
        point.draft_length,
        point.variant.key,
        point.max_batch_size,
        point.max_num_tokens,
        point.draft_share,
        point.concurrency,
    )


def frontier(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other is at least as good as in everything.

    Everything is the time of a request, its GPU seconds, and the requests per second.
    """
    ordered = sorted(points, key=lambda p: (p.e2e_ms, p.gpu_s_per_request, *tie_break(p)))
    kept: list[Point] = []
    for point in ordered:
        # Whatever comes later is no faster for one request.
        if all(_is_better_somewhere(point, other) for other in kept):
            kept.append(point)
    return tuple(kept)


def _is_better_somewhere(point: Point, other: Point) -> bool:
    return (
        point.gpu_s_per_request < other.gpu_s_per_request
        or point.requests_per_s > other.requests_per_s
    )


def _size(axes: Axes) -> int:
    lengths = (
        axes.draft_length,
        axes.max_batch_size,
        axes.max_num_tokens,
        axes.draft_share,
        axes.concurrency,
    )
    return int(np.prod([len(values) for values in lengths]))


def _counted(evaluated: Evaluated) -> dict[str, int]:
    counts = np.bincount(evaluated.code.ravel(), minlength=len(REASONS))
    return {reason or SLOWER: int(n) for reason, n in zip(REASONS, counts, strict=True)}


def _fastest(evaluated: Evaluated) -> list[Point]:
    """Return the fastest feasible point at each concurrency.

    Inside a variant GPUs are given, so at one concurrency time decides cost as well; argmin
    takes the first of equals, which has the shortest draft and the smallest server.
    """
    axes = evaluated.axes
    times = np.where(evaluated.code == 0, evaluated.e2e_ms, np.inf)
    rows = times.reshape(-1, len(axes.concurrency))
    found = []
    for column, row in enumerate(rows.argmin(axis=0)):
        if np.isfinite(rows[row, column]):
            at = np.unravel_index(row, times.shape[:-1])
            found.append(_point(evaluated, (*map(int, at), column)))
    return found


def _point(evaluated: Evaluated, at: tuple[int, ...]) -> Point:
    axes, resident = evaluated.axes, int(evaluated.resident[at])
    k, batch, tokens, share, concurrency = at
    return Point(
        variant=evaluated.variant,
        draft_length=axes.draft_length[k],
        max_batch_size=axes.max_batch_size[batch],
        max_num_tokens=axes.max_num_tokens[tokens],
        draft_share=axes.draft_share[share],
        concurrency=axes.concurrency[concurrency],
        resident=resident,
        e2e_ms=float(evaluated.e2e_ms[at]),
        memory_bytes=int(evaluated.fixed_bytes[at] + evaluated.kv_bytes[at]),
    )
