"""What users reported about tuning, with their numbers."""

from __future__ import annotations

import pytest
from planning_models import model_named
from tuning_questions import SMALL_AXES, a_draft, a_question

from specdeploy.core.acceptance import count_acceptance, tokens_per_step
from specdeploy.core.speed import Load
from specdeploy.core.tuner.agreement import Difference, compare_outputs
from specdeploy.core.tuner.answer import Said, tune
from specdeploy.core.tuner.costs import draft_costs, outweighs_gain
from specdeploy.core.tuner.measured import (
    MeasuredLoad,
    MeasuredRates,
    expected_rate,
    judge_measured,
)
from specdeploy.core.tuner.question import Fixed, Question
from specdeploy.core.tuner.space import variants
from specdeploy.core.tuning import DraftCosts

# Llama-3.3-70B tp 8 with Llama-3.2-1B, draft length 5: tokens/s per request by batch.
LOADS = [
    MeasuredLoad(concurrency=batch, baseline=base, speculative=fast)
    for batch, fast, base in (
        (1, 117.1, 64.8),
        (4, 118.5, 64.7),
        (8, 118.6, 62.0),
        (16, 107.0, 59.0),
        (32, 88.0, 56.6),
        (64, 61.885, 51.171),
    )
]


def costs_of(question: Question) -> DraftCosts:
    pair = next(v.pair for v in variants(question) if v.pair.draft)
    load = Load(8, 1024, 256)
    costs = draft_costs(pair, question.gpu, load, draft_length=4, constants=question.constants)
    assert costs is not None
    return costs


def test_high_acceptance_gains_little_when_a_step_costs_much() -> None:
    """BL-097: 384 of 426 drafted tokens accepted, and 16.5 against 14.7 tokens per second."""
    run = MeasuredRates(503, 426, 384, draft_alone=90.20, plain=14.68, verifying=25.48)
    found = expected_rate(run)
    assert found.acceptance_rate == pytest.approx(0.9014, abs=1e-4)
    assert found.plain_tokens == 119
    assert found.drafted_rate == pytest.approx(19.87, abs=0.005)
    assert found.total_rate == pytest.approx(17.0, abs=0.05)
    assert found.speedup == pytest.approx(1.16, abs=0.005)


def test_the_gain_is_told_for_each_load_and_never_carried_over() -> None:
    """BL-099: 1.8 times at batch 1 is 1.2 times at batch 64."""
    told = list(judge_measured(LOADS))
    speedups = [round(verdict.speedup, 3) for verdict in told]
    assert speedups == pytest.approx([1.807, 1.832, 1.913, 1.814, 1.555, 1.209], abs=0.002)
    last = told[-1]
    assert (round(last.total_speculative), round(last.total_baseline)) == (3961, 3275)
    assert [verdict.concurrency for verdict in told] == [1, 4, 8, 16, 32, 64]


def test_a_measured_loss_means_no_draft_there() -> None:
    """BL-099: a ratio below 1 at the load that is wanted."""
    slow = MeasuredLoad(concurrency=64, baseline=50.0, speculative=45.0)
    fast = MeasuredLoad(concurrency=1, baseline=60.0, speculative=110.0)
    won, lost = judge_measured([slow, fast])
    assert (won.concurrency, won.speculate) == (1, True)
    assert (lost.concurrency, lost.speculate) == (64, False)


@pytest.mark.parametrize(("concurrency", "verdict"), [(8, "off"), (16, "speculate")])
def test_a_measured_loss_wins_over_the_prediction_at_its_own_load_only(
    concurrency: int, verdict: str
) -> None:
    slow = MeasuredLoad(concurrency=concurrency, baseline=50.0, speculative=45.0)
    report = tune(a_question(a_draft()), Said("given", measured=(slow,)), axes=SMALL_AXES)
    assert report.verdict == verdict
    assert [row.speculate for row in report.measured] == [False]
    if verdict == "off":
        assert report.choice == report.classic
        assert report.reason.startswith("measured at 8 requests in flight, a request gets 0.90")


def test_a_measured_gain_changes_nothing() -> None:
    good = MeasuredLoad(concurrency=8, baseline=50.0, speculative=95.0)
    report = tune(a_question(a_draft()), Said("given", measured=(good,)), axes=SMALL_AXES)
    assert report.verdict == "speculate"
    plain = tune(a_question(a_draft(0.0)), Said("given", measured=(good,)), axes=SMALL_AXES)
    assert plain.verdict == "off"


def test_the_prediction_falls_with_the_load_too() -> None:
    report = tune(a_question(a_draft()), Said("given"), axes=SMALL_AXES)
    speedups = [row.speedup.value for row in report.by_concurrency]
    assert speedups == sorted(speedups, reverse=True)
    assert speedups[0] > speedups[-1]
    assert "at 8 requests in flight" in report.reason


def test_the_baseline_has_no_draft_loaded() -> None:
    """BL-100: 5.4 s without a draft, 5.8 s with one switched off: 7.4 % would be made up."""
    disabled_s, without_s = 5.8, 5.4
    assert disabled_s / without_s - 1 == pytest.approx(0.074, abs=1e-3)
    report = tune(a_question(a_draft()), Said("given"), axes=SMALL_AXES)
    plain = report.classic
    assert plain is not None
    assert (plain.method, plain.draft, plain.draft_length) == ("none", None, 0)
    assert plain.memory_bytes < report.choice.memory_bytes
    row = next(row for row in report.by_concurrency if row.concurrency == plain.concurrency)
    assert row.baseline_ttft_ms + 255 * row.baseline_tpot_ms == pytest.approx(plain.e2e_ms)


def test_a_draft_on_four_gpus_is_told_to_shrink() -> None:
    """BL-102: an 8B draft at tp 4 beside a 70B in fp16 on four A100."""
    fixed = Fixed(target_tp=4, draft_tp=4)
    question = a_question(
        a_draft(model="Llama-3.1-8B"), gpu="a100", gpu_count=4, precision="fp16", fixed=fixed
    )
    costs = costs_of(question)
    assert costs.parameter_ratio == pytest.approx(0.114, abs=1e-3)
    assert [cost.tp for cost in costs.by_tp] == [1, 4]
    assert all(cost.step_ms > 0 for cost in costs.by_tp)
    assert costs.warning is not None
    assert "smaller draft (this one has 11.4% of the target's parameters)" in costs.warning


def test_a_draft_over_a_slow_link_is_told_to_stay_on_one_gpu() -> None:
    """BL-102: the draft pays an all-reduce on each of its steps."""
    fixed = Fixed(target_tp=4, draft_tp=2)
    draft = a_draft(model="Qwen2.5-0.5B")
    question = a_question(draft, gpu="l40s", gpu_count=4, precision="fp16", fixed=fixed)
    costs = costs_of(question)
    alone, together = costs.by_tp  # 14 heads cannot be spread over 4 GPUs
    assert (alone.tp, together.tp) == (1, 2)
    assert alone.step_ms < together.step_ms
    assert costs.warning is not None
    assert costs.warning.endswith(f"serve the draft with tp 1 ({alone.step_ms:.2f} ms a step)")


def test_a_draft_as_large_as_its_target_cannot_pay() -> None:
    question = a_question(
        a_draft(model="Llama-3.1-8B"), target=model_named("Llama-3.1-8B"), precision="bf16"
    )
    costs = costs_of(question)
    assert costs.warning is not None
    assert "4 of them cost more than the 1.77 tokens that an acceptance of 0.7" in costs.warning


def test_a_small_draft_at_tp_1_is_not_warned_of() -> None:
    """BL-102: the 1B draft has 0.0175 of the target's parameters."""
    question = a_question(a_draft())
    costs = costs_of(question)
    assert costs.parameter_ratio == pytest.approx(0.0175, abs=1e-4)
    assert costs.warning is None


def test_a_draft_that_costs_more_than_it_saves_is_found_by_arithmetic() -> None:
    """BL-102: cost ratio x draft length against the gain at an acceptance of 0.7."""
    gain = tokens_per_step([0.7], 4) - 1
    assert gain == pytest.approx(1.773, abs=1e-3)
    assert outweighs_gain(gain / 4 + 0.01, 4)
    assert not outweighs_gain(gain / 4 - 0.01, 4)


def test_a_rate_of_one_does_not_rank_a_draft() -> None:
    """BL-103: 40 of 40 drafted tokens over 200 steps are 1.2 tokens per step."""
    steps = [[True]] * 40 + [[]] * 160
    counts = count_acceptance(steps)
    assert (counts.rate, counts.drafted_per_step, counts.tokens_per_step) == (1.0, 0.2, 1.2)
    assert counts.warning is not None


def test_a_few_other_answers_are_a_warning_and_only_others_an_error() -> None:
    """BL-104: greedy answers with 0, 2 and 5 draft tokens on the same prompts."""
    plain = [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert compare_outputs(plain, plain).severity == "equal"
    few = compare_outputs(plain, [[1, 2, 3], [4, 9, 6], [7, 8, 9]], [[2.0] * 3, [3, 0.01, 4], [1]])
    assert (few.severity, few.equal) == ("warning", 1)
    assert few.share == pytest.approx(1 / 3)
    assert few.differences == (Difference(1, 1, 0.01), Difference(2, 2, None))
    assert compare_outputs(plain, [[0], [0], [0]]).severity == "error"
    assert compare_outputs([], []).share == 1
