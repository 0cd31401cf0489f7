"""What ``tune`` found, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from specdeploy.cli import present
from specdeploy.core.tuning import (
    CategorySensitivity,
    ChosenPoint,
    ConcurrencyRow,
    Predicted,
    RequestCost,
    TuningReport,
)
from specdeploy.units import format_bytes, format_count

BAR_CELLS: Final = 50
HEADS: Final = (
    *("in flight", "k", "speedup", "interval", "whole", "TPOT ms", "TTFT ms", "tokens/s"),
    *("GPU memory", "pays from"),
)
WIDTHS: Final = (9, 2, 7, 9, 5, 7, 8, 8, 10, 9)
_PER_1000: Final = 1000


def print_report(report: TuningReport, path: Path) -> None:
    """Print the verdict, the table by concurrency, and what the choice depends on."""
    click.echo(f"{report.verdict}: {report.reason}")
    for line in (*_choice(report), *_costs(report)):
        click.echo(f"  {line}")
    _print_table(report)
    for title, lines in _sections(report):
        if lines:
            click.echo(f"\n{title}:")
            for line in lines:
                click.echo(f"  {line}")
    click.echo(f"\nwritten to {path}; plots beside it")


def _choice(report: TuningReport) -> Iterator[str]:
    choice = report.choice
    yield f"{report.gpu} x {choice.gpus}: {_placement(choice)}"
    yield (
        f"max_batch_size {choice.max_batch_size}, max_num_tokens "
        f"{format_count(choice.max_num_tokens)}, max_seq_len {format_count(choice.max_seq_len)}; "
        f"{format_bytes(choice.memory_bytes)} of GPU memory"
    )


def _placement(choice: ChosenPoint) -> str:
    target = f"target tp {choice.target_tp} (KV {choice.target_kv_dtype})"
    if choice.draft is None:
        return target if choice.method == "none" else f"{target}, drafting by {choice.method}"
    where = "on GPUs of its own" if choice.draft_apart else "on the same GPUs"
    share = f", {choice.draft_kv_share:.0%} of KV memory" if choice.draft_kv_share else ""
    return (
        f"{target}, draft model {choice.draft} tp {choice.draft_tp} {where} "
        f"(KV {choice.draft_kv_dtype}{share})"
    )


def _costs(report: TuningReport) -> Iterator[str]:
    cost = report.cost
    if cost.classic is None or cost.speculative is None:
        return
    yield (
        f"a request costs {_cost(cost.classic)} without speculation, "
        f"{_cost(cost.speculative)} with it, each on its own best server"
    )


def _cost(cost: RequestCost) -> str:
    money = "" if cost.money is None else f" ({_PER_1000 * cost.money:.3f} per 1000)"
    return f"{cost.gpu_s:.3f} GPU seconds{money}"


def _print_table(report: TuningReport) -> None:
    click.echo(f"\n{_line(HEADS)}")
    for row in report.by_concurrency:
        click.echo(_line(_cells(row)))
    click.echo("\nspeedup: tokens per second per request, against a server with no draft loaded;")
    click.echo("whole: time of a whole request, waiting included; pays from: least acceptance")
    if not any(row.draft_length for row in report.by_concurrency):
        return
    longest = max(row.speedup.high for row in report.by_concurrency)
    for row in report.by_concurrency:
        click.echo(f"{row.concurrency:>9} |{_bar(row.speedup, longest)}| {row.speedup.value:.2f}")


def _line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


def _cells(row: ConcurrencyRow) -> tuple[str, ...]:
    least = row.break_even_acceptance
    return (
        str(row.concurrency),
        str(row.draft_length),
        f"{row.speedup.value:.2f}",
        f"{row.speedup.low:.2f}-{row.speedup.high:.2f}",
        f"{row.whole_request_gain:.2f}",
        f"{row.tpot_ms:.1f}",
        f"{row.ttft_ms:,.0f}",
        f"{row.tokens_per_s:,.0f}",
        format_bytes(row.memory_bytes),
        "never" if least is None else f"{least:.2f}",
    )


def _bar(speedup: Predicted, longest: float) -> str:
    """Draw the interval as a line and the value as a mark, on a scale from 0."""
    low, middle, high = (
        round((BAR_CELLS - 1) * value / longest)
        for value in (speedup.low, speedup.value, speedup.high)
    )
    cells = ["-" if low <= at <= high else " " for at in range(BAR_CELLS)]
    cells[middle] = "o"
    return "".join(cells)


def _sections(report: TuningReport) -> Iterator[tuple[str, list[str]]]:
    yield "crossover", _crossover(report)
    yield "measured", list(_measured(report))
    yield "if acceptance were", list(_ifs(report))
    yield "what the choice depends on", [line for s in report.sensitivity for line in _flips(s)]
    yield "draft-length schedule", list(_schedule(report))
    yield "what drafting costs", list(present.draft_costs(report.draft_costs))
    yield "why the rest lost", [f"{n:>12,}  {why}" for why, n in report.rejected.items()]
    yield "assumed", report.assumptions


def _crossover(report: TuningReport) -> list[str]:
    if report.acceptance_source is None:
        return []
    if report.crossover is None:
        return ["speculation pays at every number of requests in flight that was looked at"]
    return [f"from {report.crossover} requests in flight on, no draft is better"]


def _measured(report: TuningReport) -> Iterator[str]:
    for row in report.measured:
        do = "speculate" if row.speculate else "draft length 0"
        yield (
            f"{row.concurrency} in flight: {row.speedup:.3f}, {row.total_speculative:,.0f} against "
            f"{row.total_baseline:,.0f} tokens/s together: {do}"
        )


def _ifs(report: TuningReport) -> Iterator[str]:
    """Yield one line for each acceptance; a cell is the best draft length and its speedup."""
    rows = report.if_acceptance
    loads = sorted({row.concurrency for row in rows})
    if rows:
        yield _if_line("in flight", [str(load) for load in loads])
    for acceptance in sorted({row.acceptance for row in rows}):
        cells = [f"{r.draft_length}: {r.speedup:.2f}" for r in rows if r.acceptance == acceptance]
        yield _if_line(f"{acceptance:.1f}", cells)


def _if_line(head: str, cells: Sequence[str]) -> str:
    return f"{head:>9}" + "".join(f"{cell:>9}" for cell in cells)


def _flips(moved: CategorySensitivity) -> Iterator[str]:
    kind = "" if moved.category == "all" else f"{moved.category} "
    now = moved.acceptance
    for flip in moved.flips:
        yield (
            f"k becomes {flip.draft_length} when {kind}acceptance is {flip.side} "
            f"{flip.acceptance:.2f}"
        )
    yield (
        f"{kind}acceptance is taken as {now.value:.2f} ({now.low:.2f} to {now.high:.2f}); in that "
        f"interval keeping the choice costs at most {moved.regret:.1%} of the time"
    )


def _schedule(report: TuningReport) -> Iterator[str]:
    schedule = report.schedule
    if schedule is None:
        return
    for tier in schedule.tiers:
        yield f"{tier.from_batch} to {tier.to_batch} in flight: k {tier.draft_length}"
    if schedule.draft_len_schedule is not None:
        yield f"draft_len_schedule: {schedule.draft_len_schedule} ({schedule.meaning} bounds)"
    yield from schedule.notes
