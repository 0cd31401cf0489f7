"""Many points at once are each what one alone would be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_models import model_named

from specdeploy.core.estimate import (
    ONE_TOKEN,
    Deployed,
    Estimate,
    PointLoad,
    TokensPerStep,
    estimate_loads,
    memory_request,
)
from specdeploy.core.hardware import find_gpu
from specdeploy.core.memory import GpuMemory, plan_memory
from specdeploy.core.served import ServedPair, serve_model
from specdeploy.core.speed import Load, estimate_speed
from specdeploy.units import GIB

GPU = find_gpu("h200")
TARGET = serve_model(model_named("Llama-3.1-70B"), precision="fp8")
DRAFT = serve_model(model_named("Llama-3.2-1B"), precision="fp8")
PAIR = Deployed(ServedPair(TARGET, DRAFT, "draft_target"), GPU, GpuMemory.of(GPU))
TOKENS = TokensPerStep(2.5, 2.2, 2.9)
LOAD = PointLoad(8, 1024, 256, 4, 8192, TOKENS)

LOADS = st.builds(
    PointLoad,
    batch=st.integers(1, 256),
    input_len=st.integers(1, 8000),
    output_len=st.integers(2, 2000),
    draft_length=st.integers(1, 8),
    max_num_tokens=st.just(8192),
    tokens=st.just(TokensPerStep(1.5, 1.2, 1.8)),
)


def estimated(load: PointLoad, deployed: Deployed = PAIR) -> Estimate:
    return Estimate.model_validate(estimate_loads(deployed, [load])[0])


def test_a_point_is_what_the_two_models_say() -> None:
    found = estimated(LOAD)
    plan = plan_memory(memory_request(PAIR, LOAD))
    assert (found.fits, found.max_resident) == (plan.fits, plan.max_resident)
    load = Load(8, 1024, 256, resident=plan.max_resident)
    speed = estimate_speed(PAIR.pair, GPU, load, draft_length=4, tokens_per_step=2.5)
    assert found.baseline == speed.baseline
    assert found.speculative == speed.speculative
    assert found.speedup == pytest.approx(speed.speedup)
    assert found.bound_by == speed.bound_by


@settings(max_examples=20)
@given(st.lists(LOADS, min_size=2, max_size=5))
def test_points_do_not_touch_each_other(loads: list[PointLoad]) -> None:
    assert estimate_loads(PAIR, loads) == [estimate_loads(PAIR, [load])[0] for load in loads]


def test_every_predicted_number_has_an_interval_and_a_source() -> None:
    found = estimated(LOAD)
    for way, speed in (("baseline", found.baseline), ("speculative", found.speculative)):
        for name, value in dict(speed or ()).items():
            if name != "tokens_per_step":
                interval = found.interval[f"{way}.{name}"]
                assert interval.low <= value <= interval.high
    assert found.speedup is not None
    assert found.interval["speedup"].low < found.speedup < found.interval["speedup"].high
    assert found.sources.keys() == found.interval.keys()


def test_known_tokens_leave_a_smaller_interval_than_an_acceptance() -> None:
    sure = estimated(replace(LOAD, tokens=TokensPerStep(2.5, 2.5, 2.5))).interval["speedup"]
    unsure = estimated(LOAD).interval["speedup"]
    assert unsure.low < sure.low
    assert unsure.high > sure.high


@pytest.mark.parametrize("tokens", [None, ONE_TOKEN, TOKENS])
def test_no_draft_tokens_are_the_baseline_exactly(tokens: TokensPerStep | None) -> None:
    found = estimated(replace(LOAD, batch=300, draft_length=0, tokens=tokens))
    assert found.baseline is not None
    assert found.speculative == found.baseline
    assert found.speedup == 1.0
    assert found.interval["speculative.tpot_ms"] == found.interval["baseline.tpot_ms"]


def test_without_acceptance_there_is_no_speculative_number() -> None:
    found = estimated(replace(LOAD, tokens=None))
    assert found.baseline is not None
    assert (found.speculative, found.speedup) == (None, None)


def test_what_does_not_fit_has_no_numbers() -> None:
    small = replace(PAIR, memory=GpuMemory(40 * GIB))
    found = estimated(LOAD, small)
    assert (found.fits, found.max_resident, found.memory.binding) == (False, 0, "weights")
    assert (found.baseline, found.speculative, found.bound_by) == (None, None, None)
    assert found.interval == {}


def test_a_target_that_fits_without_its_draft_keeps_its_baseline() -> None:
    tight = replace(PAIR, memory=GpuMemory(int(71.5 * GIB)))
    found = estimated(LOAD, tight)
    assert not found.fits
    assert found.baseline is not None
    assert found.speculative is None


def test_a_target_alone_has_a_baseline() -> None:
    alone = Deployed(ServedPair(TARGET), GPU, GpuMemory.of(GPU))
    found = estimated(replace(LOAD, draft_length=0, tokens=None), alone)
    assert found.speculative == found.baseline
