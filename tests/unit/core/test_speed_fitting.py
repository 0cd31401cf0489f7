"""Fitting constants to measured points, and believing a fit only where it helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from planning_models import model_named
from speed_pairs import H100, measured, target

from specdeploy.core.hardware import find_gpu
from specdeploy.core.served import ServedPair, serve_model
from specdeploy.core.speed import DEFAULT, Constants, calibrating, fitting
from specdeploy.core.speed.calibrating import calibrate, names_for
from specdeploy.core.speed.fitting import FitOptions, fit, fit_residuals
from specdeploy.core.speed.measured import Errors, Measured, errors_of, joined, mean_absolute
from specdeploy.core.speed.serving import Serving

SLOWER = DEFAULT.moved({"layer_s": 4.5e-5, "fp8_efficiency": 0.35, "queue_slope": 0.15})
NOISE = (0.95, 1.0, 1.0, 1.05, 1.0, 1.1, 0.92)


def test_a_fit_finds_the_constants_that_made_the_points() -> None:
    points = measured(SLOWER, points=24)
    options = FitOptions(("layer_s", "fp8_efficiency", "queue_slope"), pull=0.001)
    found = fit([points], DEFAULT, options)
    assert found.layer_s == pytest.approx(SLOWER.layer_s, rel=0.02)
    assert found.fp8_efficiency == pytest.approx(SLOWER.fp8_efficiency, rel=0.02)
    assert found.queue_slope == pytest.approx(SLOWER.queue_slope, rel=0.05)


def test_a_pull_keeps_constants_near_their_start() -> None:
    points = measured(SLOWER)
    near, far = (
        fit([points], DEFAULT, FitOptions(("layer_s",), pull=pull)).layer_s
        for pull in (100.0, 0.01)
    )
    assert near == pytest.approx(DEFAULT.layer_s, rel=0.01)
    assert far > near


def test_a_fit_stays_inside_the_bounds_of_the_table() -> None:
    twice = measured(DEFAULT, noise=lambda _: 5.0)
    found = fit([twice], DEFAULT, FitOptions(("layer_s", "read_efficiency"), pull=0.0))
    assert found.layer_s == pytest.approx(6e-5)
    assert found.read_efficiency == pytest.approx(0.5)


def test_a_fit_of_points_that_are_met_already_moves_nothing() -> None:
    found = fit([measured(DEFAULT)], DEFAULT, FitOptions(("layer_s", "step_s")))
    assert found == DEFAULT


def test_a_fit_that_no_constant_changes_ends_where_it_began() -> None:
    found = fit_residuals(lambda _: np.array([1.0]), DEFAULT, ("layer_s",), pull=0.0)
    assert found == DEFAULT


def test_a_fit_ends_after_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_ROUNDS", 1)
    points, options = measured(SLOWER), FitOptions(("layer_s", "fp8_efficiency"), pull=0.001)
    once = fit([points], DEFAULT, options)
    monkeypatch.undo()
    assert errors_of([points], fit([points], DEFAULT, options)).tpot_mean < (
        errors_of([points], once).tpot_mean
    )


def test_one_wild_point_does_not_carry_a_fit_away() -> None:
    wild = measured(DEFAULT, noise=lambda i: 0.05 if i == 3 else 1.0, points=24)
    found = fit([wild], DEFAULT, FitOptions(("layer_s", "step_s")))
    calm = [i for i in range(len(wild)) if i != 3]
    assert errors_of([wild.only(np.array(calm))], found).tpot_mean < 0.08


def test_times_that_were_not_measured_are_left_out() -> None:
    points = measured(DEFAULT)
    silent = replace(points, ttft_ms=np.full(len(points), np.nan))
    errors = errors_of([silent], DEFAULT)
    assert errors.tpot_mean == pytest.approx(0)
    assert np.isnan(errors.ttft_mean)
    assert fit([silent], DEFAULT, FitOptions(("layer_s",))) == DEFAULT


def test_errors_of_nothing_are_not_known() -> None:
    assert np.isnan(joined([]).tpot_mean)
    assert np.isnan(mean_absolute(np.array([])))
    assert isinstance(errors_of([], DEFAULT), Errors)


def test_a_part_of_the_points_keeps_who_waits() -> None:
    points = measured(DEFAULT)
    load = replace(points.load, resident=np.arange(1, 13))
    part = replace(points, load=load).only(np.array([2, 5]))
    assert part.load.resident is not None
    assert list(np.asarray(part.load.resident)) == [3, 6]
    assert len(part) == 2


def test_a_calibration_brings_down_the_error_on_points_left_out() -> None:
    found = calibrate([measured(SLOWER, points=20)])
    assert found.after.tpot < found.before.tpot / 2
    assert found.values
    assert found.points == 20
    assert set(found.spread) == {"tpot", "ttft"}
    fresh = measured(SLOWER, points=31)
    assert errors_of([fresh], found.apply()).tpot_mean < errors_of([fresh], DEFAULT).tpot_mean


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_noise_alone_makes_nothing_worse(seed: int) -> None:
    rough = np.exp(0.2 * np.random.default_rng(seed).standard_normal(12))
    found = calibrate([measured(DEFAULT, noise=lambda i: float(rough[i]))])
    truth = measured(DEFAULT, points=24)
    assert errors_of([truth], found.apply()).tpot_mean < 0.05


def test_nothing_moves_where_left_out_points_are_not_met_better() -> None:
    # The second half of the loads repeats the first with the opposite error.
    found = calibrate([measured(DEFAULT, noise=lambda i: 0.8 if i < 12 else 1.25, points=24)])
    assert found.values == {}
    assert found.after == found.before
    assert found.apply() == DEFAULT


def test_nothing_moves_where_first_tokens_would_be_met_worse() -> None:
    # As if the step were slower and prefill were not, which no constant can tell apart.
    slower = measured(DEFAULT.moved({"layer_s": 6e-5}), points=20)
    found = calibrate([replace(slower, ttft_ms=measured(DEFAULT, points=20).ttft_ms)])
    assert found.before.ttft == pytest.approx(0, abs=1e-9)
    assert found.values == {}


def test_first_tokens_may_be_met_as_well_as_their_scatter_tells() -> None:
    slower = measured(DEFAULT.moved({"layer_s": 6e-5}), points=20)
    rough = measured(DEFAULT, points=20, noise=lambda i: NOISE[i % 7])
    found = calibrate([replace(slower, ttft_ms=rough.ttft_ms)])
    assert found.after.tpot < found.before.tpot / 2
    assert found.after.ttft is not None
    assert found.before.ttft is not None
    assert found.before.ttft < found.after.ttft < 1.25 * found.before.ttft


def test_as_many_points_as_a_fit_may_begin_with_are_enough() -> None:
    found = calibrate([measured(SLOWER, points=4)])
    assert found.points == 4
    assert found.after.tpot <= found.before.tpot


def test_too_few_points_move_nothing() -> None:
    assert calibrate([measured(SLOWER, points=3)]).values == {}


def test_few_points_bring_no_intervals() -> None:
    found = calibrate([measured(SLOWER, points=9)])
    assert found.values
    assert found.spread == {}


def test_points_without_first_tokens_calibrate_the_rest() -> None:
    points = measured(SLOWER, points=20)
    found = calibrate([replace(points, ttft_ms=np.full(20, np.nan))])
    assert found.after.tpot < found.before.tpot
    assert found.before.ttft is found.after.ttft is None
    assert set(found.spread) == {"tpot"}


def test_several_deployments_are_fitted_together() -> None:
    groups = [measured(SLOWER, points=1), measured(SLOWER, points=11)]
    found = calibrate(groups)
    assert found.points == 12
    assert found.after.tpot < found.before.tpot


@pytest.mark.parametrize(
    ("model", "gpu", "expected", "absent"),
    [
        (target(), "h100", "read_efficiency", "all_reduce_s"),
        (target(tp=2), "h100", "all_reduce_s", "expert_efficiency"),
        (target(precision="nvfp4"), "b200", "fp4_efficiency", "read_efficiency"),
        (target(precision="nvfp4"), "b200", "blackwell_read_efficiency", "layer_x"),
        (target(precision="int8_sq"), "h100", "fp8_efficiency", "half_efficiency"),
        (
            serve_model(model_named("Qwen/Qwen3-30B-A3B")),
            "h100",
            "expert_layer_s",
            "fp8_efficiency",
        ),
    ],
)
def test_only_constants_that_the_points_tell_about_move(
    model: object, gpu: str, expected: str, absent: str
) -> None:
    points = measured(DEFAULT)
    serving = Serving.of(ServedPair(model), find_gpu(gpu), DEFAULT)  # type: ignore[arg-type]
    names = names_for([replace(points, serving=serving)])
    assert expected in names
    assert absent not in names
    assert list(names) == sorted(names)


def test_the_same_points_give_the_same_calibration() -> None:
    points = [measured(SLOWER)]
    assert calibrate(points) == calibrate(points)
    assert H100.name == "h100-sxm"


def test_a_fit_does_not_see_the_points_that_it_is_judged_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []

    def watched(groups: Sequence[Measured], start: Constants, options: FitOptions) -> Constants:
        seen.append(sum(map(len, groups)))
        return fit(groups, start, options)

    monkeypatch.setattr(calibrating, "fit", watched)
    calibrate([measured(SLOWER, points=10)])
    assert seen[:5] == [8, 8, 8, 8, 8]
