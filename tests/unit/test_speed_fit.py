"""What `scripts/fit_constants` and `scripts/validate_predictor` stand for."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from speed_fit.fits import fit_dense
from speed_fit.folds import by_model, constants_without, errors_by_deployment, five_folds
from speed_fit.making import as_python, constants_table, differences, with_table
from speed_fit.published import PublishedPoint, best_length, curves_of, read_points
from speed_fit.rows import Deployments, Key, read_deployments, read_rows, split_by_kind
from speed_fit.spread import LEVEL, even_factors, nested_coverage, share_to_ask_for

from specdeploy.core.speed import DEFAULT, TABLE
from specdeploy.core.speed.fitted import FITTED, SPREAD
from specdeploy.core.speed.measured import Errors, joined


@cache
def dense() -> Deployments:
    return split_by_kind(read_deployments(read_rows()[0]))[0]


@cache
def points() -> list[PublishedPoint]:
    return read_points()


def unseen(folds: list[list[Key]]) -> Errors:
    each = errors_by_deployment(dense(), constants_without(dense(), folds, fit_dense))
    return joined(list(each.values()))


def test_unseen_deployments_are_met_as_promised() -> None:
    errors = unseen(five_folds(dense()))
    assert errors.tpot_mean < 0.112
    assert errors.ttft_mean < 0.25


def test_a_model_left_out_whole_is_met_as_promised() -> None:
    errors = unseen(by_model(dense()))
    assert errors.tpot_mean < 0.153
    assert errors.ttft_mean < 0.27


def test_rows_of_drawn_lengths_are_not_taken_to_end_together() -> None:
    rows, _ = read_rows()
    drawn = [row for row in rows if not row.equal_lengths]
    assert {row.isl for row in drawn} == {922, 7373}
    assert {row.model_path for row in rows if row.batch_wait_iters} == {"meta-llama/Llama-3.1-70B"}
    waiting = [row for row in drawn if row.batch_wait_iters]
    assert len(waiting) == 24
    assert all(row.isl == row.osl == 922 and row.tp_size < 8 for row in waiting)


def test_published_speedups_are_met_as_promised() -> None:
    errors = [point.predicted(DEFAULT) / point.speedup - 1 for point in points()]
    assert len(errors) == 14
    assert np.mean(np.abs(errors)) < 0.08


def test_the_best_draft_length_of_a_published_curve_is_met_within_one() -> None:
    curves = {name: curve for name, curve in curves_of(points()).items() if len(curve) > 1}
    assert len(curves) == 2
    for curve in curves.values():
        measured = best_length(curve, [point.speedup for point in curve])
        predicted = best_length(curve, [point.predicted(DEFAULT) for point in curve])
        assert abs(measured - predicted) <= 1


def test_every_deployment_is_in_one_fold() -> None:
    folds = five_folds(dense())
    assert sorted(key for fold in folds for key in fold) == sorted(dense())


def test_rows_that_are_left_out_are_counted_by_reason() -> None:
    rows, left_out = read_rows()
    assert len(rows) + sum(left_out.values()) == 670
    assert left_out["tp above 8"] == 45
    assert all(row.tp_size <= 8 and row.outside is None for row in rows)


def test_an_interval_is_widened_until_other_folds_lie_inside() -> None:
    rng = np.random.default_rng(3)
    # Folds that err each in a direction of its own.
    folds = [
        np.expm1(shift + 0.02 * rng.standard_normal(40)) for shift in (-0.2, -0.1, 0, 0.1, 0.2)
    ]
    share = share_to_ask_for(folds)
    assert share > LEVEL
    assert share == 1.0 or nested_coverage(folds, share) >= LEVEL


def test_folds_that_err_alike_need_no_wider_interval() -> None:
    rng = np.random.default_rng(3)
    folds = [0.1 * rng.uniform(-1, 1, 400) for _ in range(5)]
    assert share_to_ask_for(folds) <= LEVEL + 0.02


def test_even_factors_reach_as_far_down_as_up() -> None:
    low, high = even_factors(np.array([-0.2, 0.0, 0.01, 0.02, 0.03]))
    assert low * high == pytest.approx(1)
    assert high > 1


def test_a_constant_that_moved_is_a_difference_and_rounding_is_not() -> None:
    moved = {**FITTED, "layer_s": FITTED["layer_s"] * 1.02}
    rounded = {name: value * 1.0001 for name, value in FITTED.items()}
    assert differences((rounded, SPREAD), (FITTED, SPREAD)) == []
    assert [line.split(":")[0] for line in differences((moved, SPREAD), (FITTED, SPREAD))] == [
        "layer_s"
    ]
    gone = {name: value for name, value in FITTED.items() if name != "step_s"}
    assert len(differences((gone, SPREAD), (FITTED, SPREAD))) == 1


def test_what_is_written_reads_back() -> None:
    scope: dict[str, object] = {}
    exec(as_python(FITTED, SPREAD), scope)  # noqa: S102 - our own text
    assert (scope["FITTED"], scope["SPREAD"], scope["LEVEL"]) == (FITTED, SPREAD, LEVEL)


def test_the_document_keeps_its_text_round_the_table() -> None:
    begin = "<!-- constants: written by scripts/fit_constants -->"
    document = f"before\n{begin}\nold\n<!-- end of constants -->\nafter\n"
    table = constants_table(FITTED)
    found = with_table(document, table)
    assert found.startswith("before\n")
    assert found.endswith("<!-- end of constants -->\nafter\n")
    assert "\nold\n" not in found
    assert all(f"`{constant.name}`" in found for constant in TABLE)
    assert with_table(found, table) == found
