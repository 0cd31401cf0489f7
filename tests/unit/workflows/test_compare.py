from __future__ import annotations

import pytest

from specdeploy.core.comparison import Answer, Settings
from specdeploy.errors import BenchmarkError
from specdeploy.events import Reporter
from specdeploy.workflows.compare import choose_settings, compare_arms, plan_prompts


def settings(arm: str, *, draft_length: int = 0) -> Settings:
    return Settings.model_validate(
        {
            "arm": arm,
            "shape": "engine",
            "method": "none" if arm == "classic" else "draft_target",
            "precision": "fp32",
            "threads": 1,
            "draft_length": draft_length,
        }
    )


class ScriptedServers:
    """Answers at a speed that depends on the settings, and remembers what was asked."""

    def __init__(self, speeds: dict[Settings, float], *, tokens: int = 10) -> None:
        self.speeds, self.tokens = speeds, tokens
        self.asked: list[tuple[Settings, str]] = []

    def __call__(self, which: Settings, prompt: str, max_tokens: int) -> Answer:
        self.asked.append((which, prompt))
        tokens = min(self.tokens, max_tokens)
        return Answer(
            output_tokens=tokens,
            ttft_s=0.01,
            first_chunk_tokens=1,
            latency_s=tokens / self.speeds[which],
            text=prompt,
        )


CLASSIC, SHORT, LONG = (
    settings("classic"),
    settings("speculative", draft_length=2),
    settings("speculative", draft_length=6),
)
PROMPTS = [f"prompt {n}" for n in range(12)]


def test_prompts_for_choosing_are_never_reported() -> None:
    plan = plan_prompts(PROMPTS, rounds=(2, 4), max_tokens=8)
    chosen = {prompt for part in plan.choosing for prompt in part}
    reported = {prompt for part in plan.reporting for prompt in part}
    assert len(chosen) == 4
    assert len(reported) == 8
    assert not chosen & reported


def test_a_prompt_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        plan_prompts(["a", "a"], rounds=(1, 1), max_tokens=8)


def test_the_fastest_candidate_is_chosen_whatever_its_place_in_the_list() -> None:
    servers = ScriptedServers({SHORT: 100.0, LONG: 200.0})
    plan = plan_prompts(PROMPTS, rounds=(1, 1), max_tokens=8)
    for order in ([SHORT, LONG], [LONG, SHORT]):
        assert choose_settings(order, ask=servers, prompts=plan, reporter=Reporter()) == LONG


def test_both_arms_answer_every_prompt_and_take_turns_to_go_first() -> None:
    servers = ScriptedServers({CLASSIC: 100.0, LONG: 150.0})
    plan = plan_prompts(PROMPTS, rounds=(0, 3), max_tokens=8)
    comparison = compare_arms(CLASSIC, LONG, ask=servers, prompts=plan, candidates=3)
    firsts = [which.arm for which, _ in servers.asked[::2]]
    assert comparison.speedup == pytest.approx(1.5)
    assert abs(firsts.count("classic") - firsts.count("speculative")) <= 1
    assert [prompt for _, prompt in servers.asked[::2]] == PROMPTS


def test_an_empty_answer_is_an_untrustworthy_measurement() -> None:
    servers = ScriptedServers({CLASSIC: 100.0, LONG: 150.0}, tokens=0)
    plan = plan_prompts(PROMPTS, rounds=(0, 3), max_tokens=8)
    with pytest.raises(BenchmarkError, match="nothing"):
        compare_arms(CLASSIC, LONG, ask=servers, prompts=plan, candidates=3)
