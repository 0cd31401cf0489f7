"""The errors of the speed model on what it was not fitted to, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.hardware import find_gpu
from specdeploy.core.memory import GpuMemory, MemoryRequest, memory_grid
from specdeploy.core.speed import DEFAULT
from specdeploy.core.speed.calibrating import calibrate
from specdeploy.core.speed.load import as_array
from specdeploy.core.speed.measured import Errors, Measured, errors_of, joined, mean_absolute
from speed_fit.fits import fit_dense, fit_experts
from speed_fit.folds import (
    FOLDS,
    SEED,
    Fit,
    by_model,
    constants_without,
    errors_by_deployment,
    errors_by_fold,
    five_folds,
)
from speed_fit.published import PublishedPoint, best_length, curves_of, read_points
from speed_fit.rows import LARGEST_TP, Deployments, Key, read_deployments, read_rows, split_by_kind
from speed_fit.spread import LEVEL, nested_coverage, share_to_ask_for, unseen_speedups

MOST_POINTS: Final = 10
# Half of a smaller deployment is left to look at.
FEWEST_POINTS: Final = 8


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that is validated."""

    dense: Deployments
    experts: Deployments
    points: Sequence[PublishedPoint]
    left_out: Mapping[str, int]


def read_inputs() -> Inputs:
    """Return the measured rows and published speedups."""
    rows, left_out = read_rows()
    dense, experts = split_by_kind(read_deployments(rows))
    return Inputs(dense, experts, read_points(), left_out)


def report(inputs: Inputs) -> Iterator[str]:
    """Yield the lines of the report."""
    yield from _scope(inputs)
    yield "## Dense models"
    yield ""
    yield from _kind(inputs.dense, fit_dense)
    yield from _left_out_models(inputs.dense)
    yield from _calibrated(inputs.dense)
    yield "## Mixtures of experts"
    yield ""
    served = fit_dense(list(inputs.dense.values()))
    yield from _kind(inputs.experts, partial(fit_experts, dense=served))
    yield from _published(inputs.points)
    yield from _memory(inputs)


def _scope(inputs: Inputs) -> Iterator[str]:
    count = {name: sum(map(len, groups.values())) for name, groups in _kinds(inputs)}
    yield (
        f"measured_serving.csv: {count['dense']} rows of {len(inputs.dense)} deployments of dense "
        f"models, {count['experts']} rows of {len(inputs.experts)} of mixtures of experts. A "
        "deployment is one model, GPU, precision and parallelism. Left out: "
        + ", ".join(f"{n} rows ({reason})" for reason, n in inputs.left_out.items())
        + f"; tp is at most {LARGEST_TP}."
    )
    yield ""
    yield (
        f"Split: {FOLDS} folds over whole deployments, shuffled by numpy's default_rng({SEED}). "
        "An error is |predicted / measured - 1|."
    )
    yield ""


def _kinds(inputs: Inputs) -> Iterator[tuple[str, Deployments]]:
    yield "dense", inputs.dense
    yield "experts", inputs.experts


def _kind(groups: Deployments, fit: Fit) -> Iterator[str]:
    folds = errors_by_fold(groups, five_folds(groups), fit)
    yield "Uncalibrated, five folds over deployments:"
    yield ""
    yield "| number | mean | median | 90th percentile | bias | inside the interval |"
    yield "|---|---:|---:|---:|---:|---:|"
    yield _row("TPOT", [fold.tpot for fold in folds])
    yield _row("TTFT", [fold.ttft for fold in folds])
    yield ""
    yield (
        f"The interval is meant to hold {LEVEL:.0%}; here it is made from the errors of the other "
        "folds."
    )
    yield ""


def _row(name: str, folds: Sequence[NDArray[np.float64]]) -> str:
    errors = np.concatenate(folds)
    errors = errors[~np.isnan(errors)]
    size = np.abs(errors)
    inside = nested_coverage(folds, share_to_ask_for(folds))
    return (
        f"| {name} | {np.mean(size):.1%} | {np.median(size):.1%} | {np.quantile(size, 0.9):.1%} "
        f"| {np.median(errors):+.1%} | {inside:.0%} |"
    )


def _left_out_models(groups: Deployments) -> Iterator[str]:
    each = errors_by_deployment(groups, constants_without(groups, by_model(groups), fit_dense))
    yield "Uncalibrated, one model left out whole:"
    yield ""
    yield "| model left out | rows | TPOT | TTFT |"
    yield "|---|---:|---:|---:|"
    for model in sorted({key[0] for key in each}):
        mine = joined([errors for key, errors in each.items() if key[0] == model])
        yield f"| {model} | {len(mine.tpot)} | {mine.tpot_mean:.1%} | {mine.ttft_mean:.1%} |"
    everything = joined(list(each.values()))
    yield (
        f"| all | {len(everything.tpot)} | {everything.tpot_mean:.1%} | "
        f"{everything.ttft_mean:.1%} |"
    )
    yield ""


def _calibrated(groups: Deployments) -> Iterator[str]:
    constants = constants_without(groups, five_folds(groups), fit_dense)
    yield (
        f"Calibrated to at most {MOST_POINTS} points of each deployment (half of them where it has "
        "fewer than twice as many), errors on its other points, starting from constants that were "
        "fitted without it:"
    )
    yield ""
    yield "| deployment | points | TPOT before | after | TTFT before | after |"
    yield "|---|---:|---:|---:|---:|---:|"
    before, after = [], []
    for key, group in sorted(groups.items()):
        if len(group) >= FEWEST_POINTS:
            seen = _spaced(len(group))
            unseen = np.setdiff1d(np.arange(len(group)), seen)
            found = calibrate([group.only(seen)], constants[key])
            before.append(errors_of([group.only(unseen)], constants[key]))
            after.append(errors_of([group.only(unseen)], found.apply(constants[key])))
            yield _change(" ".join(map(str, key)), len(seen), before[-1], after[-1])
    yield _change("all", len(before), joined(before), joined(after))
    yield ""


def _spaced(count: int) -> NDArray[np.intp]:
    most = min(MOST_POINTS, count // 2)
    return np.linspace(0, count - 1, most).round().astype(np.intp)


def _change(name: str, count: int, before: Errors, after: Errors) -> str:
    return (
        f"| {name} | {count} | {before.tpot_mean:.1%} | {after.tpot_mean:.1%} "
        f"| {before.ttft_mean:.1%} | {after.ttft_mean:.1%} |"
    )


def _published(points: Sequence[PublishedPoint]) -> Iterator[str]:
    errors = np.array([point.predicted(DEFAULT) / point.speedup - 1 for point in points])
    possible = np.array([point.possible for point in points])
    yield "## Published speedups"
    yield ""
    yield (
        f"published_numbers.json: {len(points)} records name target, a GPU of the table, batch, "
        "draft length, tokens per step and speedup."
    )
    yield ""
    yield "| record | batch | k | tokens per step | measured | predicted | error |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for point, error in zip(points, errors, strict=True):
        mark = "" if point.possible else " (more than the tokens per step)"
        yield (
            f"| {point.name}{mark} | {float(as_array(point.load.batch)):g} | {point.draft_length} "
            f"| {point.tokens_per_step} | {point.speedup} | {point.speedup * (1 + error):.2f} "
            f"| {error:+.1%} |"
        )
    unseen = unseen_speedups(points, DEFAULT)
    yield ""
    yield (
        f"Mean absolute error {mean_absolute(errors):.1%}; {mean_absolute(errors[possible]):.1%} "
        "without records whose speedup is above their tokens per step. Two constants are fitted to "
        f"these records; with each curve left out of that fit, {mean_absolute(unseen):.1%}."
    )
    yield ""
    yield from _best_lengths(points)


def _best_lengths(points: Sequence[PublishedPoint]) -> Iterator[str]:
    yield "| curve | best k measured | predicted |"
    yield "|---|---:|---:|"
    for name, curve in curves_of(points).items():
        if len(curve) > 1:
            measured = best_length(curve, [point.speedup for point in curve])
            predicted = best_length(curve, [point.predicted(DEFAULT) for point in curve])
            yield f"| {name} | {measured} | {predicted} |"
    yield ""


def _memory(inputs: Inputs) -> Iterator[str]:
    groups = {**inputs.dense, **inputs.experts}
    refused = sum(_refused(key, group) for key, group in groups.items())
    yield "## Memory"
    yield ""
    yield (
        f"{refused} of {sum(map(len, groups.values()))} measured rows are said not to fit in GPU "
        "memory; all of them ran."
    )


def _refused(key: Key, group: Measured) -> int:
    load = group.load
    whole = (as_array(load.input_len) + as_array(load.output_len)).astype(np.int64)
    memory = memory_grid(
        MemoryRequest(
            pair=group.serving.pair,
            gpu=GpuMemory.of(find_gpu(key[1])),
            max_seq_len=int(whole.max()),
        ),
        batch=as_array(load.batch).astype(np.int64),
        max_seq_len=whole,
    )
    return int(np.sum(~memory.fits))
