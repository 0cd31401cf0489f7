"""From what the search found to everything that ``tune`` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from specdeploy.core.acceptance import MixedCurve, tokens_per_step
from specdeploy.core.acceptance_presets import flat_acceptance
from specdeploy.core.memory import MemoryPlan, plan_memory
from specdeploy.core.release_profile import DraftLenSchedule
from specdeploy.core.resolution import DEFAULT_DRAFT_LENGTH
from specdeploy.core.schedule import DraftLengthSchedule, plan_schedule
from specdeploy.core.speed import Load, estimate_speed
from specdeploy.core.tuner.costs import cost_comparison, draft_costs
from specdeploy.core.tuner.evaluate import memory_request
from specdeploy.core.tuner.infeasible import nothing_fits
from specdeploy.core.tuner.ladder import (
    Ladder,
    Sensitivity,
    build_ladder,
    crossover,
    sensitivity,
    times,
    tokens_of,
)
from specdeploy.core.tuner.measured import MeasuredLoad, judge_measured
from specdeploy.core.tuner.question import Axes, Question, axes_of
from specdeploy.core.tuner.rows import if_rows, table_rows
from specdeploy.core.tuner.search import Found, Point, search
from specdeploy.core.tuner.space import NO_ACCEPTANCE, Variant, variants
from specdeploy.core.tuning import (
    AcceptanceFlip,
    CategorySensitivity,
    ChosenPoint,
    ConcurrencyRow,
    DraftCosts,
    MeasuredVerdict,
    Predicted,
    TuningReport,
)

# Concurrencies in which the crossover is looked for: every one, then every eighth.
DENSE: Final = (*range(1, 65), *range(72, 513, 8))
HOW_TO_MEASURE: Final = (
    "no acceptance is known, and none is made up: measure it on your own requests "
    "(acceptance.json), or pass --acceptance A with the chance that the next draft token is "
    "accepted"
)


@dataclass(frozen=True, slots=True)
class Said:
    """What the answer repeats and the search does not need."""

    acceptance_source: str | None = None
    price_per_gpu_hour: float | None = None
    reading: DraftLenSchedule | None = None
    measured: tuple[MeasuredLoad, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def tune(question: Question, said: Said, *, axes: Axes | None = None) -> TuningReport:
    """Search everything, and tell the choice, how sure it is, and what it depends on.

    Raises:
        InfeasiblePlanError: nothing is feasible; names what binds and what would fit.
        ConfigError: the target cannot be served so at any tensor parallelism.
    """
    grid = axes or axes_of(question)
    found = search(question, grid)
    if found.best is None:
        raise nothing_fits(question, grid, found)
    variant = _looked_into(question, found)
    mixed = variant.candidate.acceptance
    tokens = (found.speculative or found.best).max_num_tokens
    loads = tuple(sorted({*question.workload.table, found.best.concurrency}))
    table = build_ladder(question, variant, concurrency=loads, max_num_tokens=tokens)
    rows = table_rows(table, mixed)
    measured = list(judge_measured(said.measured))
    lost = _measured_loss(found.best, measured)
    chosen = found.plain if lost and found.plain else found.best
    return TuningReport(
        verdict="speculate" if chosen.draft_length else "off",
        reason=_measured_reason(lost) if lost else _reason(found, mixed, rows, variant),
        target=question.target.name,
        gpu=question.gpu.name,
        gpu_count=question.gpu_count,
        objective=question.objective,
        shape=question.shape,
        acceptance_source=said.acceptance_source if mixed else None,
        choice=chosen_point(question, chosen),
        classic=chosen_point(question, found.plain) if found.plain else None,
        frontier=[chosen_point(question, point) for point in found.frontier],
        by_concurrency=rows,
        crossover=_crossover(question, variant, tokens),
        measured=measured,
        if_acceptance=[] if mixed else list(if_rows(table)),
        sensitivity=_sensitivities(question, variant, chosen),
        schedule=_schedule(question, chosen, said),
        draft_costs=_draft_costs(question, variant, chosen),
        cost=cost_comparison(found.plain, found.speculative, price=said.price_per_gpu_hour),
        memory=memory_of(question, chosen),
        combinations=found.combinations,
        rejected=found.rejected,
        assumptions=[*said.assumptions, *_assumptions(question, variant)],
        warnings=[*said.warnings, *_warnings(chosen, rows)],
    )


def _draft_costs(question: Question, variant: Variant, chosen: Point) -> DraftCosts | None:
    load = question.workload
    return draft_costs(
        variant.pair,
        question.gpu,
        Load(load.planned, load.prompt.mean, load.answer.mean),
        draft_length=chosen.draft_length or DEFAULT_DRAFT_LENGTH,
        constants=question.constants,
    )


def _assumptions(question: Question, variant: Variant) -> list[str]:
    """Return what acceptance and the speed model take for granted."""
    load, mixed = question.workload, variant.candidate.acceptance
    found = estimate_speed(
        variant.pair,
        question.gpu,
        Load(load.planned, load.prompt.mean, load.answer.mean),
        draft_length=0 if variant.pair.method == "none" else 1,
        tokens_per_step=1.0,
        constants=question.constants,
    )
    return [*(mixed.assumptions if mixed else ()), *found.assumptions]


def chosen_point(question: Question, point: Point) -> ChosenPoint:
    """Return a point as a record."""
    pair = point.variant.pair
    return ChosenPoint(
        draft_length=point.draft_length,
        max_batch_size=point.max_batch_size,
        max_num_tokens=point.max_num_tokens,
        max_seq_len=question.workload.max_seq_len,
        method=pair.method,
        draft=point.variant.candidate.name if pair.draft else None,
        target_tp=pair.target.tp,
        draft_tp=pair.draft.tp if pair.draft else None,
        draft_apart=pair.draft_apart,
        target_kv_dtype=pair.target.kv_dtype,
        draft_kv_dtype=pair.draft.kv_dtype if pair.draft else None,
        draft_kv_share=point.draft_share or None,
        gpus=point.variant.gpus,
        concurrency=point.concurrency,
        resident=point.resident,
        e2e_ms=point.e2e_ms,
        requests_per_s=point.requests_per_s,
        gpu_s_per_request=point.gpu_s_per_request,
        memory_bytes=point.memory_bytes,
    )


def memory_of(question: Question, point: Point) -> MemoryPlan:
    """Return the memory of a point, line by line."""
    request = replace(
        memory_request(question, point.variant),
        max_batch_size=point.max_batch_size,
        max_num_tokens=point.max_num_tokens,
        draft_length=point.draft_length,
    )
    return plan_memory(request)


def _looked_into(question: Question, found: Found) -> Variant:
    """Return the variant that the table is for: the best that speculates, else one that might."""
    assert found.best is not None  # noqa: S101 - the caller looked
    if found.speculative is not None:
        return found.speculative.variant
    target = found.best.variant.pair.target
    unknown = (
        variant
        for variant in variants(question)
        if variant.refused == NO_ACCEPTANCE and variant.pair.target == target
    )
    return next(unknown, found.best.variant)


def _measured_loss(best: Point, measured: Sequence[MeasuredVerdict]) -> MeasuredVerdict | None:
    """Return the measurement at the chosen load, where it says that drafting is slower."""
    if not best.draft_length:
        return None
    here = (verdict for verdict in measured if verdict.concurrency == best.concurrency)
    return next((verdict for verdict in here if not verdict.speculate), None)


def _measured_reason(lost: MeasuredVerdict) -> str:
    return (
        f"measured at {lost.concurrency} requests in flight, a request gets {lost.speedup:.2f} "
        "times the tokens per second with the draft"
    )


def _reason(
    found: Found, mixed: MixedCurve | None, rows: list[ConcurrencyRow], variant: Variant
) -> str:
    best = found.best
    assert best is not None  # noqa: S101 - the caller looked
    row = next((row for row in rows if row.concurrency == best.concurrency), None)
    if best.draft_length and row is not None:
        return (
            f"{best.draft_length} draft tokens of {best.variant.candidate.name} are best at "
            f"{best.concurrency} requests in flight, where a request gets "
            f"{row.speedup.value:.2f} times the tokens per second"
        )
    if variant.candidate.method == "none":
        return "no way to draft is feasible"
    if mixed is None:
        return HOW_TO_MEASURE
    least = row.break_even_acceptance if row else None
    needed = "no acceptance would do" if least is None else f"it would from {least:.2f} on"
    return (
        f"at {best.concurrency} requests in flight no draft length pays at this acceptance "
        f"({needed})"
    )


def _crossover(question: Question, variant: Variant, max_num_tokens: int) -> int | None:
    mixed = variant.candidate.acceptance
    if mixed is None or variant.pair.method == "none":
        return None
    ladder = build_ladder(question, variant, concurrency=DENSE, max_num_tokens=max_num_tokens)
    return crossover(ladder, mixed)


def _sensitivities(
    question: Question, variant: Variant, chosen: Point
) -> list[CategorySensitivity]:
    mixed = variant.candidate.acceptance
    if mixed is None or variant.pair.method == "none":
        return []
    ladder = build_ladder(
        question,
        variant,
        concurrency=(chosen.concurrency,),
        max_num_tokens=chosen.max_num_tokens,
    )
    return [_told(_moved(ladder, mixed, name, chosen), mixed, name) for name in mixed.parts]


def _moved(ladder: Ladder, mixed: MixedCurve, name: str, chosen: Point) -> Sensitivity:
    length = max(chosen.draft_length, 1)
    curve = mixed.parts[name]
    ends = (curve.middle, curve.low, curve.high)
    now = [flat_acceptance(tokens_per_step(end, length), length) for end in ends]
    return sensitivity(ladder, mixed, name, chosen=chosen.draft_length, now=now)


def _told(moved: Sensitivity, mixed: MixedCurve, name: str) -> CategorySensitivity:
    level = mixed.parts[name].level
    return CategorySensitivity(
        category=name,
        acceptance=Predicted(value=moved.acceptance, low=moved.low, high=moved.high, level=level),
        flips=[
            AcceptanceFlip(side=f.side, acceptance=f.acceptance, draft_length=f.draft_length)
            for f in moved.flips
        ],
        regret=moved.regret,
    )


def _schedule(question: Question, chosen: Point, said: Said) -> DraftLengthSchedule | None:
    mixed = chosen.variant.candidate.acceptance
    if not chosen.draft_length or mixed is None:
        return None
    batches = tuple(range(1, chosen.max_batch_size + 1))
    ladder = build_ladder(
        question, chosen.variant, concurrency=batches, max_num_tokens=chosen.max_num_tokens
    )
    milliseconds = times(ladder, tokens_of(ladder, mixed))
    worth = np.where(np.isfinite(milliseconds), 1 / milliseconds, 0.0)
    rows = np.zeros((ladder.lengths[-1] + 1, len(batches)))
    rows[list(ladder.lengths)] = worth
    found = plan_schedule(
        {batch: rows[:, column].tolist() for column, batch in enumerate(batches)},
        method=chosen.variant.pair.method,
        reading=said.reading,
        max_batch_size=chosen.max_batch_size,
        load=question.workload.concurrency,
    )
    if found.max_draft_len <= chosen.draft_length:
        return found
    note = (
        f"a build takes draft_length {chosen.draft_length} and cuts longer tiers to it; set "
        f"draft_length: {found.max_draft_len} to have them"
    )
    return found.evolve(notes=[*found.notes, note])


def _warnings(chosen: Point, rows: list[ConcurrencyRow]) -> Iterator[str]:
    row = next((row for row in rows if row.concurrency == chosen.concurrency), None)
    if chosen.draft_length and row and row.speedup.low < 1:
        yield (
            f"the interval of the speedup at {chosen.concurrency} requests in flight reaches down "
            f"to {row.speedup.low:.2f}: measure before you rely on it"
        )
    if chosen.resident < chosen.concurrency:
        yield (
            f"memory holds {chosen.resident} of {chosen.concurrency} requests in flight; the "
            "others wait"
        )
