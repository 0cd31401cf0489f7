"""The table by concurrency, and what it would say at other acceptances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from specdeploy.core.acceptance import LEVEL, MixedCurve, flat_mix, mixed_bounds, mixed_table
from specdeploy.core.memory import memory_grid
from specdeploy.core.served import ServedPair
from specdeploy.core.speed import Load, SpeedEstimate, estimate_speed
from specdeploy.core.tuner.evaluate import memory_request
from specdeploy.core.tuner.ladder import Ladder, best_rows, break_even, speeds, times, tokens_of
from specdeploy.core.tuner.space import NO_DRAFT, Variant
from specdeploy.core.tuning import ConcurrencyRow, IfRow, Predicted

IF_ACCEPTANCES: Final = (0.5, 0.6, 0.7, 0.8, 0.9)
ONE: Final = Predicted(value=1.0, low=1.0, high=1.0, level=LEVEL)


def table_rows(ladder: Ladder, mixed: MixedCurve | None) -> list[ConcurrencyRow]:
    """Return one row for each concurrency at which a server fits; without acceptance, no draft."""
    least = break_even(ladder)
    lengths = _best(ladder, mixed) if mixed else [0] * len(ladder.concurrency)
    return [
        _row(ladder, mixed, column, length, least[column])
        for column, length in enumerate(lengths)
        if ladder.resident[0, column] or length
    ]


def if_rows(ladder: Ladder, acceptances: Sequence[float] = IF_ACCEPTANCES) -> Iterator[IfRow]:
    """Yield what would be best if acceptance were so at every position."""
    for acceptance in acceptances:
        mixed = flat_mix(acceptance)
        grid = speeds(ladder, tokens_of(ladder, mixed))
        gains = grid.baseline_tpot_ms / grid.tpot_ms
        for column, length in enumerate(_best(ladder, mixed)):
            row = ladder.lengths.index(length)
            yield IfRow(
                acceptance=acceptance,
                concurrency=ladder.concurrency[column],
                draft_length=length,
                speedup=float(gains[row, column]),
            )


def speedup_interval(ladder: Ladder, mixed: MixedCurve, column: int, length: int) -> Predicted:
    """Return the speedup with the uncertainty of acceptance and of the speed model.

    The low end is the model's low end at the low end of acceptance, and so above: wider than
    either alone.
    """
    if not length:
        return ONE
    low, high = mixed_bounds(mixed, length)
    worst = estimate(ladder, column, length, low[length]).intervals["speedup"]
    best = estimate(ladder, column, length, high[length]).intervals["speedup"]
    middle = estimate(ladder, column, length, mixed_table(mixed, length)[length])
    return Predicted(value=middle.speedup, low=worst.low, high=best.high, level=worst.level)


def estimate(ladder: Ladder, column: int, length: int, tokens: float) -> SpeedEstimate:
    """Return the whole estimate of one cell."""
    load, row = ladder.question.workload, ladder.lengths.index(length)
    return estimate_speed(
        ladder.variant.pair if length else ServedPair(ladder.variant.pair.target),
        ladder.question.gpu,
        Load(
            ladder.concurrency[column],
            load.prompt.mean,
            load.answer.mean,
            resident=max(int(ladder.resident[row, column]), 1),
            resident_plain=max(int(ladder.resident[0, column]), 1),
        ),
        draft_length=length,
        tokens_per_step=tokens,
        constants=replace(ladder.question.constants, max_num_tokens=float(ladder.max_num_tokens)),
    )


def _best(ladder: Ladder, mixed: MixedCurve) -> list[int]:
    rows = best_rows(times(ladder, tokens_of(ladder, mixed)))
    return [ladder.lengths[row] for row in rows]


def _row(
    ladder: Ladder, mixed: MixedCurve | None, column: int, length: int, least: float | None
) -> ConcurrencyRow:
    tokens = mixed_table(mixed, length)[length] if mixed else 1.0
    found = estimate(ladder, column, length, tokens)
    resident = int(ladder.resident[ladder.lengths.index(length), column])
    return ConcurrencyRow(
        concurrency=ladder.concurrency[column],
        draft_length=length,
        speedup=speedup_interval(ladder, mixed, column, length) if mixed else ONE,
        whole_request_gain=found.speculative.tokens_per_s / found.baseline.tokens_per_s,
        tokens_per_step=tokens,
        tpot_ms=found.speculative.tpot_ms,
        ttft_ms=found.speculative.ttft_ms,
        baseline_tpot_ms=found.baseline.tpot_ms,
        baseline_ttft_ms=found.baseline.ttft_ms,
        tokens_per_s=found.speculative.tokens_per_s,
        resident=resident,
        memory_bytes=_memory(ladder, column, length, resident),
        break_even_acceptance=least,
    )


def _memory(ladder: Ladder, column: int, length: int, resident: int) -> int:
    plain = Variant(NO_DRAFT, ServedPair(ladder.variant.pair.target), ladder.variant.gpus)
    batch = ladder.concurrency[column]
    grid = memory_grid(
        memory_request(ladder.question, ladder.variant if length else plain),
        batch=np.array(batch),
        draft_length=np.array(length),
        max_num_tokens=np.array(max(ladder.max_num_tokens, batch * (length + 1))),
    )
    return int(grid.fixed_bytes + resident * grid.request_bytes)
