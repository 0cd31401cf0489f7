"""What an estimate says beside its numbers: intervals, sources, assumptions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning_models import model_named
from speed_pairs import H100, LOAD, a_pair, gpu_with, target, with_head

from specdeploy.core.hardware import find_gpu
from specdeploy.core.served import ServedPair, serve_model
from specdeploy.core.speed import DEFAULT, Constants, SpeedEstimate, estimate_speed
from specdeploy.core.speed.fitted import LEVEL, SPREAD


def estimate(
    pair: ServedPair, *, gpu: str = "h100", length: int = 3, constants: Constants = DEFAULT
) -> SpeedEstimate:
    return estimate_speed(
        pair, find_gpu(gpu), LOAD, draft_length=length, tokens_per_step=2.0, constants=constants
    )


def test_every_number_has_an_interval_round_it() -> None:
    found = estimate(a_pair())
    values = {"speedup": found.speedup}
    for name, speed in (("baseline", found.baseline), ("speculative", found.speculative)):
        numbers = speed.model_dump()
        numbers.pop("tokens_per_step")
        values |= {f"{name}.{number}": value for number, value in numbers.items()}
    assert found.intervals.keys() == values.keys() == found.sources.keys()
    for name, interval in found.intervals.items():
        assert interval.low < values[name] < interval.high
        assert interval.level == LEVEL


def test_a_time_and_its_rate_have_the_same_interval() -> None:
    found = estimate(a_pair())
    tpot = found.intervals["speculative.tpot_ms"]
    rate = found.intervals["speculative.tokens_per_s_per_request"]
    assert rate.low == pytest.approx(1000 / tpot.high)
    assert rate.high == pytest.approx(1000 / tpot.low)


def test_speculation_is_less_certain_than_the_baseline() -> None:
    found = estimate(a_pair())
    plain, fast = (
        found.intervals[f"{way}.tpot_ms"].high / speed.tpot_ms
        for way, speed in (("baseline", found.baseline), ("speculative", found.speculative))
    )
    assert plain == pytest.approx(SPREAD["dense"]["tpot"][1])
    assert fast > plain


def test_without_draft_tokens_the_speedup_is_certain() -> None:
    found = estimate(a_pair(), length=0)
    assert found.intervals["speedup"].low == found.intervals["speedup"].high == 1
    assert found.intervals["speculative.tpot_ms"] == found.intervals["baseline.tpot_ms"]


def test_mixtures_of_experts_have_wider_intervals() -> None:
    experts = ServedPair(serve_model(model_named("Qwen/Qwen3-30B-A3B")))
    found = estimate(experts, length=0)
    high = found.intervals["baseline.tpot_ms"].high / found.baseline.tpot_ms
    assert high == pytest.approx(SPREAD["experts"]["tpot"][1])


def test_a_calibration_brings_its_own_intervals() -> None:
    own = replace(DEFAULT, spread={"tpot": (0.99, 1.01)})
    found = estimate(a_pair(), length=0, constants=own)
    assert found.intervals["baseline.tpot_ms"].high == pytest.approx(1.01 * found.baseline.tpot_ms)
    high = found.intervals["baseline.ttft_ms"].high / found.baseline.ttft_ms
    assert high == pytest.approx(SPREAD["dense"]["ttft"][1])


def test_numbers_rest_on_the_fit_unless_something_weaker_is_used() -> None:
    assert set(estimate(a_pair()).sources.values()) == {"fitted"}
    assert estimate(a_pair()).assumptions == []


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        (ServedPair(target(), method="ngram"), "prompt lookup"),
        (with_head("medusa"), "positions verified per draft token"),
        (a_pair(through_bls=True), "two calls from a BLS model"),
    ],
)
def test_what_was_never_measured_is_said_to_be_assumed(pair: ServedPair, told: str) -> None:
    found = estimate(pair)
    assert any(told in line for line in found.assumptions)
    assert found.sources["baseline.tpot_ms"] == "fitted"
    assert found.sources["speculative.tpot_ms"] == found.sources["speedup"] == "assumed"
    plain = estimate(pair, length=0)
    assert plain.assumptions == []
    assert plain.sources["speculative.tpot_ms"] == "fitted"


@pytest.mark.parametrize(
    ("gpu", "told"),
    [("custom:81559:9.0", "has the rates of h100"), ("a100", "SM 80"), ("l4", "SM 89")],
)
def test_a_gpu_without_measured_rows_is_said_to_be_assumed(gpu: str, told: str) -> None:
    found = estimate(a_pair(), gpu=gpu)
    assert told in " ".join(found.assumptions)
    assert set(found.sources.values()) == {"assumed"}


def test_gpus_without_nvlink_are_said_to_be_assumed() -> None:
    found = estimate_speed(
        ServedPair(target(tp=2)),
        gpu_with(nvlink_gb_s=0),
        LOAD,
        draft_length=0,
        tokens_per_step=1,
    )
    assert "PCIe" in found.assumptions[0]


def test_a_calibrated_baseline_says_so_and_drafting_stays_fitted() -> None:
    own = replace(DEFAULT, calibrated=frozenset({"layer_s"}))
    found = estimate(a_pair(), constants=own)
    assert found.sources["baseline.tpot_ms"] == "calibrated"
    assert found.sources["speculative.tpot_ms"] == "fitted"
    assert estimate(a_pair(), length=0, constants=own).sources["speedup"] == "calibrated"


def test_a_calibrated_constant_is_no_longer_assumed() -> None:
    own = replace(DEFAULT, calibrated=frozenset({"round_trip_s"}))
    found = estimate(a_pair(through_bls=True), constants=own)
    assert found.assumptions == []
    assert found.sources["speedup"] == "fitted"


def test_a_small_batch_is_bound_by_weights_and_a_large_one_is_not() -> None:
    assert estimate(ServedPair(target()), length=0).bound_by == "weights"
    huge = estimate_speed(
        ServedPair(target()),
        H100,
        replace(LOAD, batch=256, input_len=32768),
        draft_length=0,
        tokens_per_step=1,
    )
    assert huge.bound_by == "attention"
