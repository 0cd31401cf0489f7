from __future__ import annotations

import pytest

from specdeploy.core.comparison import (
    Answer,
    Protocol,
    Round,
    Settings,
    summarize_arm,
    summarize_comparison,
)


def an_answer(**changes: object) -> Answer:
    base = Answer(output_tokens=11, ttft_s=0.1, first_chunk_tokens=1, latency_s=1.1, text="x")
    return base.evolve(**changes)


def settings(arm: str) -> Settings:
    return Settings.model_validate(
        {
            "arm": arm,
            "shape": "llmapi",
            "method": "none" if arm == "classic" else "draft_target",
            "precision": "fp32",
            "threads": 1,
            "draft_length": 0 if arm == "classic" else 4,
        }
    )


def test_inter_token_latency_leaves_out_every_token_of_the_first_chunk() -> None:
    metrics = summarize_arm([an_answer(first_chunk_tokens=6)])
    assert metrics.itl_ms == pytest.approx(1000 * 1.0 / 5)


def test_no_gap_after_the_first_chunk_is_none_and_not_zero() -> None:
    assert summarize_arm([an_answer(first_chunk_tokens=11)]).itl_ms is None


def test_acceptance_rate_and_tokens_per_step_are_whole_request_ratios() -> None:
    answers = [
        an_answer(drafted_tokens=8, accepted_tokens=8, steps=3),
        an_answer(drafted_tokens=2, accepted_tokens=0, steps=8),
    ]
    metrics = summarize_arm(answers)
    assert metrics.acceptance_rate == pytest.approx(0.8)
    assert metrics.tokens_per_step == pytest.approx(2.0)


def test_the_classic_arm_has_no_acceptance() -> None:
    metrics = summarize_arm([an_answer()])
    assert metrics.acceptance_rate is None
    assert metrics.tokens_per_step is None


def test_speedup_is_the_median_of_the_rounds_and_carries_their_range() -> None:
    rounds = [
        Round(classic=[an_answer()], speculative=[an_answer(latency_s=1.1 / r)])
        for r in (1.0, 4.0, 2.0)
    ]
    comparison = summarize_comparison(
        settings("classic"),
        settings("speculative"),
        rounds,
        Protocol(prompts_per_round=1, max_tokens=11, candidates=2),
    )
    assert comparison.speedup == pytest.approx(2.0)
    assert (comparison.speedup_low, comparison.speedup_high) == pytest.approx((1.0, 4.0))


def test_answers_that_differ_are_not_counted_as_identical() -> None:
    rounds = [
        Round(classic=[an_answer(), an_answer()], speculative=[an_answer(), an_answer(text="y")])
    ]
    comparison = summarize_comparison(
        settings("classic"),
        settings("speculative"),
        rounds,
        Protocol(prompts_per_round=2, max_tokens=11, candidates=2),
    )
    assert comparison.identical_answers == 1


def test_nothing_to_summarize_is_refused() -> None:
    with pytest.raises(ValueError, match="no answers"):
        summarize_arm([])


def test_a_comparison_without_a_round_is_refused() -> None:
    protocol = Protocol(prompts_per_round=1, max_tokens=11, candidates=2)
    with pytest.raises(ValueError, match="no rounds"):
        summarize_comparison(settings("classic"), settings("speculative"), [], protocol)
