"""Laws of the joint search, whatever the models and the load."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_models import model_named
from tuning_questions import SMALL_AXES, a_draft, a_question

from specdeploy.core.acceptance import flat_mix
from specdeploy.core.config import Objective
from specdeploy.core.memory import GpuMemory, plan_memory
from specdeploy.core.served import ServedPair
from specdeploy.core.speed import Load, estimate_speed
from specdeploy.core.tuner.evaluate import REASONS, evaluate, memory_request
from specdeploy.core.tuner.question import Axes, Candidate, Fixed, Question, axes_of
from specdeploy.core.tuner.search import SLOWER, best_of, frontier, search
from specdeploy.core.tuner.space import LOSSY, NO_ACCEPTANCE, Variant, variants
from specdeploy.errors import ConfigError
from specdeploy.units import GIB

LOOKUP = Candidate("ngram", "ngram", acceptance=flat_mix(0.3))
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


def pair_of(question: Question, *, apart: bool = False) -> Variant:
    """Return the first variant with a draft that is looked into."""
    return next(
        variant
        for variant in variants(question)
        if variant.pair.draft and not variant.refused and variant.pair.draft_apart == apart
    )


def feasible(question: Question, axes: Axes) -> int:
    rejected = search(question, axes).rejected
    return rejected.get(SLOWER, 0)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_choice_lies_on_the_frontier(objective: Objective) -> None:
    question = a_question(
        a_draft(), LOOKUP, gpu_count=4, objective=objective, load={"concurrency": [1, 8, 64]}
    )
    found = search(question, replace(SMALL_AXES, concurrency=(1, 8, 64)))
    assert found.best in found.frontier


def test_no_point_of_the_frontier_is_beaten_by_another() -> None:
    found = search(a_question(a_draft(), gpu_count=8), replace(SMALL_AXES, concurrency=(1, 8, 64)))
    assert len(found.frontier) > 1
    for one in found.frontier:
        assert not any(
            other.e2e_ms <= one.e2e_ms
            and other.gpu_s_per_request <= one.gpu_s_per_request
            and other.requests_per_s >= one.requests_per_s
            for other in found.frontier
            if other is not one
        )


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_grid_changes_nothing(shuffled: random.Random) -> None:
    question = a_question(a_draft(), LOOKUP)
    values = [list(getattr(SMALL_AXES, name)) for name in Axes.__slots__]
    for axis in values:
        shuffled.shuffle(axis)
    axes = Axes.of(**dict(zip(Axes.__slots__, values, strict=True)))
    candidates = list(question.candidates)
    shuffled.shuffle(candidates)
    again = search(replace(question, candidates=tuple(candidates)), axes)
    assert again == search(question, SMALL_AXES)


@settings(max_examples=15, deadline=None)
@given(st.integers(60, 200), st.integers(0, 100))
def test_more_memory_never_shrinks_the_feasible_set(gib: int, more: int) -> None:
    question = a_question(a_draft())
    small = replace(question, memory=GpuMemory(gib * GIB))
    large = replace(question, memory=GpuMemory((gib + more) * GIB))
    variant = pair_of(question)
    fits = evaluate(small, variant, SMALL_AXES).code == 0
    assert np.all(evaluate(large, variant, SMALL_AXES).code[fits] == 0)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.05, 0.95), st.floats(0, 0.05))
def test_more_acceptance_never_makes_a_request_slower(acceptance: float, more: float) -> None:
    one, two = (a_question(a_draft(a)) for a in (acceptance, acceptance + more))
    slow = evaluate(one, pair_of(one), SMALL_AXES).e2e_ms
    fast = evaluate(two, pair_of(two), SMALL_AXES).e2e_ms
    assert np.all(fast <= slow * (1 + 1e-12))


def test_without_a_draft_the_point_is_the_baseline_itself() -> None:
    question = a_question(a_draft(), fixed=Fixed(max_num_tokens=8192))
    plain = search(question, axes_of(question)).plain
    assert plain is not None
    assert plain.variant.pair.draft is None
    load = Load(8, 1024, 256, resident=8)
    target = plain.variant.pair.target
    pair = ServedPair(target, pair_of(question).pair.draft, "draft_target")
    for served, length in ((ServedPair(target), 0), (pair, 4)):
        found = estimate_speed(
            served, question.gpu, load, draft_length=length, tokens_per_step=2.0
        ).baseline
        assert found.ttft_ms + 255 * found.tpot_ms == plain.e2e_ms


def test_acceptance_0_is_never_worth_a_draft() -> None:
    found = search(a_question(a_draft(0.0)), SMALL_AXES)
    assert found.best is not None
    assert found.best.draft_length == 0


def test_acceptance_1_is_worth_the_longest_draft() -> None:
    found = search(a_question(a_draft(1.0)), SMALL_AXES)
    assert found.best is not None
    assert found.best.draft_length == 8


def test_among_equals_the_shorter_draft_wins() -> None:
    point = search(a_question(a_draft()), SMALL_AXES).best
    assert point is not None
    longer = replace(point, draft_length=point.draft_length + 1)
    for objective in OBJECTIVES:
        assert best_of([longer, point], objective) == point
    assert frontier([longer, point]) == (point,)


def test_every_combination_is_counted_once() -> None:
    question = a_question(a_draft(), a_draft(None, model="Llama-3.1-8B"), gpu_count=2)
    found = search(question, SMALL_AXES)
    lost = sum(found.rejected.values())
    assert found.combinations == lost + 1
    grids = (
        evaluate(question, variant, SMALL_AXES).size
        for variant in variants(question)
        if not variant.refused
    )
    refused = found.rejected[LOSSY] + found.rejected[NO_ACCEPTANCE]
    assert found.combinations == sum(grids) + refused


def test_memory_of_a_point_is_that_of_the_plan() -> None:
    question = a_question(a_draft())
    point = search(question, SMALL_AXES).best
    assert point is not None
    request = replace(
        memory_request(question, point.variant),
        max_batch_size=point.max_batch_size,
        max_num_tokens=point.max_num_tokens,
        draft_length=point.draft_length,
    )
    plan = plan_memory(request)
    assert plan.fits
    assert min(plan.max_resident, point.max_batch_size) == point.resident


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"memory": GpuMemory(40 * GIB)}, "the weights do not fit in GPU memory"),
        ({"load": {"slo": {"ttft_ms": 1.0}}}, "time to first token is above its limit"),
        ({"load": {"slo": {"tpot_ms": 1.0}}}, "time per output token is above its limit"),
        ({"load": {"slo": {"e2e_ms": 1.0}}}, "time to the last token is above its limit"),
        ({"load": {"request_rate": 1000.0}}, "it does not carry the request rate"),
        ({"load": {"input_len": 200_000}}, "longer than a model's positions"),
        ({}, "max_batch_size x (draft_length + 1) is above max_num_tokens"),
    ],
)
def test_a_point_is_refused_for_a_reason(changes: dict[str, Any], reason: str) -> None:
    axes = replace(SMALL_AXES, max_num_tokens=(256, 8192))
    rejected = search(a_question(a_draft(), **changes), axes).rejected
    assert any(reason in told for told in rejected)


def test_a_split_that_starves_a_pool_is_refused() -> None:
    axes = replace(SMALL_AXES, draft_share=(0.0, 0.001))
    question = a_question(a_draft(), memory=GpuMemory(80 * GIB))
    assert any("split of KV memory" in told for told in search(question, axes).rejected)


def test_equal_token_capacity_is_the_best_split() -> None:
    axes = replace(SMALL_AXES, draft_share=(0.0, 0.02, 0.05, 0.1, 0.5))
    question = a_question(a_draft())
    resident = evaluate(question, pair_of(question), axes).resident
    assert np.all(resident[:, :, :, :1] >= resident)


def test_a_limit_of_the_time_per_token_is_held_against_the_slow_end() -> None:
    axes = replace(SMALL_AXES, max_batch_size=(8,), max_num_tokens=(8192,))
    question = a_question()
    target = next(v for v in variants(question) if not v.refused)
    load = Load(8, 1024, 256)
    speed = estimate_speed(target.pair, question.gpu, load, draft_length=0, tokens_per_step=1.0)
    slow_end = speed.intervals["baseline.tpot_ms"].high
    assert slow_end > speed.baseline.tpot_ms * 1.02
    for limit, feasible in ((speed.baseline.tpot_ms * 1.02, False), (slow_end * 1.001, True)):
        limited = a_question(load={"slo": {"tpot_ms": limit}})
        assert (search(limited, axes).best is not None) == feasible


def test_a_kv_type_that_changes_the_target_is_refused_unless_it_is_allowed() -> None:
    question = a_question()
    assert LOSSY in search(question, SMALL_AXES).rejected
    allowed = search(replace(question, allow_lossy=True), SMALL_AXES)
    assert LOSSY not in allowed.rejected
    asked = search(replace(question, fixed=Fixed(target_kv_dtype="fp8")), SMALL_AXES)
    assert asked.best is not None
    assert asked.best.variant.pair.target.kv_dtype == "fp8"


def test_a_gpu_without_fp8_gets_no_fp8_cache() -> None:
    kinds = {v.pair.target.kv_dtype for v in variants(a_question(gpu="a100"))}
    assert kinds == {"bf16"}


def test_a_draft_nobody_knows_the_acceptance_of_is_not_chosen() -> None:
    found = search(a_question(a_draft(None)), SMALL_AXES)
    assert found.speculative is None
    assert found.rejected[NO_ACCEPTANCE] > 0


def test_a_draft_beside_and_apart_are_both_looked_at() -> None:
    question = a_question(a_draft(), gpu_count=4)
    found = {
        (v.pair.target.tp, v.pair.draft.tp, v.pair.draft_apart)
        for v in variants(question)
        if v.pair.draft
    }
    beside = {(t, d, False) for t in (1, 2, 4) for d in (1, 2, 4) if d <= t}
    apart = {(t, d, True) for t in (1, 2) for d in (1, 2) if t + d <= 4}
    assert found == beside | apart


def test_one_process_splits_the_draft_as_the_target() -> None:
    question = a_question(a_draft(), gpu_count=4, shape="llmapi")
    drafts = [v for v in variants(question) if v.pair.draft]
    assert {v.pair.draft_apart for v in drafts} == {False}
    for variant in drafts:
        assert variant.pair.draft is not None
        assert variant.pair.draft.tp == variant.pair.target.tp
        assert variant.pair.draft.kv_dtype == variant.pair.target.kv_dtype
        grid = evaluate(question, variant, SMALL_AXES)
        assert grid.axes.draft_share == (0.0,)


def test_what_the_user_fixed_stays() -> None:
    fixed = Fixed(
        draft_length=3,
        max_batch_size=16,
        max_num_tokens=4096,
        target_tp=2,
        draft_tp=1,
        draft_kv_dtype="bf16",
    )
    question = a_question(a_draft(), gpu_count=4, fixed=fixed)
    point = search(question).speculative
    assert point is not None
    pair = point.variant.pair
    assert pair.draft is not None
    assert (pair.target.tp, pair.draft.tp, pair.draft.kv_dtype) == (2, 1, "bf16")
    assert (point.draft_length, point.max_batch_size, point.max_num_tokens) == (3, 16, 4096)


def test_heads_that_cannot_be_spread_are_left_out_or_refused() -> None:
    target = model_named("Qwen2.5-7B")
    question = a_question(a_draft(model="Qwen2.5-0.5B"), target=target, gpu_count=8)
    assert {v.pair.target.tp for v in variants(question)} == {1, 2, 4}
    assert {v.pair.draft.tp for v in variants(question) if v.pair.draft} == {1, 2}
    with pytest.raises(ConfigError, match=r"28 attention heads of .* cannot be spread"):
        variants(replace(question, fixed=Fixed(target_tp=8)))


def test_every_reason_is_a_sentence_of_its_own() -> None:
    assert len(set(REASONS)) == len(REASONS)


def test_a_rate_chooses_the_load_by_itself() -> None:
    question = a_question(a_draft(), load={"request_rate": 1.5})
    found = search(question)
    assert found.best is not None
    assert found.best.requests_per_s >= 1.5
    assert found.plain is not None
    assert found.plain.concurrency >= found.best.concurrency


def test_throughput_may_choose_the_load_when_nobody_gave_one() -> None:
    question = a_question(a_draft(), objective="throughput")
    assert axes_of(question).concurrency == (8,)
    free = replace(question, workload=replace(question.workload, assumed_concurrency=True))
    assert axes_of(free).concurrency == question.workload.table
