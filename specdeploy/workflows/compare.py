"""Measure classic against speculative generation, each arm at its own best settings.

Settings are chosen on the first prompts and reported on others. Every round sends the same
prompts through both arms, one request at a time, the arms taking turns to go first, so that
a machine that speeds up or slows down does so for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from specdeploy.core.comparison import (
    Answer,
    Comparison,
    Protocol,
    Round,
    Settings,
    summarize_comparison,
    tokens_per_second,
)
from specdeploy.errors import BenchmarkError
from specdeploy.events import Reporter

Ask = Callable[[Settings, str, int], Answer]
"""Sends one prompt with a maximum of output tokens to the server of these settings."""


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """Prompts for choosing and for reporting; the two share none.

    Attributes:
        choosing: A few rounds of prompts, each used once per candidate.
        reporting: The rounds that are reported.
        max_tokens: Output tokens per request, at most.
    """

    choosing: Sequence[Sequence[str]]
    reporting: Sequence[Sequence[str]]
    max_tokens: int


def plan_prompts(texts: Sequence[str], *, rounds: tuple[int, int], max_tokens: int) -> PromptPlan:
    """Deal prompts into rounds of equal size.

    Args:
        texts: Distinct prompts.
        rounds: How many rounds to choose on, and how many to report.
        max_tokens: Output tokens per request, at most.

    Raises:
        ValueError: there are fewer prompts than rounds, or a prompt stands twice.
    """
    if len(set(texts)) != len(texts):
        raise ValueError("a prompt stands twice: a prefix cache would flatter the second time")
    total = sum(rounds)
    size = len(texts) // total
    if size == 0:
        raise ValueError(f"{len(texts)} prompts cannot fill {total} rounds")
    dealt = [texts[i * size : (i + 1) * size] for i in range(total)]
    return PromptPlan(dealt[: rounds[0]], dealt[rounds[0] :], max_tokens)


def choose_settings(
    candidates: Sequence[Settings], *, ask: Ask, prompts: PromptPlan, reporter: Reporter
) -> Settings:
    """Return the fastest candidate on the choosing prompts, all of them taking turns."""
    answers: dict[Settings, list[Answer]] = {candidate: [] for candidate in candidates}
    for prompt in chain.from_iterable(prompts.choosing):
        for candidate in candidates:
            answers[candidate].append(_answer(candidate, prompt, ask, prompts.max_tokens))
    speeds = {candidate: tokens_per_second(found) for candidate, found in answers.items()}
    for candidate, speed in sorted(speeds.items(), key=lambda item: -item[1]):
        reporter.note(f"{describe(candidate)}: {speed:.0f} tokens/s")
    return max(candidates, key=lambda candidate: speeds[candidate])


def compare_arms(
    classic: Settings, speculative: Settings, *, ask: Ask, prompts: PromptPlan, candidates: int
) -> Comparison:
    """Measure the two arms on the reporting prompts.

    Args:
        classic: The chosen classic settings.
        speculative: The chosen speculative settings.
        ask: Sends a request.
        prompts: The rounds to report.
        candidates: How many settings the two were chosen from.
    """
    rounds: list[Round] = []
    for texts in prompts.reporting:
        found: dict[str, list[Answer]] = {"classic": [], "speculative": []}
        for index, prompt in enumerate(texts):
            order = (classic, speculative) if (index + len(rounds)) % 2 else (speculative, classic)
            for settings in order:
                answer = _answer(settings, prompt, ask, prompts.max_tokens)
                found[settings.arm].append(answer)
        rounds.append(Round(classic=found["classic"], speculative=found["speculative"]))
    protocol = Protocol(
        prompts_per_round=len(prompts.reporting[0]),
        max_tokens=prompts.max_tokens,
        candidates=candidates,
    )
    return summarize_comparison(classic, speculative, rounds, protocol)


def describe(settings: Settings) -> str:
    """Return settings as one short line."""
    threads = f"{settings.threads} thread{'s' if settings.threads > 1 else ''}"
    drafting = f", draft length {settings.draft_length}" if settings.arm == "speculative" else ""
    return f"{settings.shape} {settings.arm}: {settings.precision}, {threads}{drafting}"


def _answer(settings: Settings, prompt: str, ask: Ask, max_tokens: int) -> Answer:
    answer = ask(settings, prompt, max_tokens)
    if answer.output_tokens < 1 or answer.latency_s <= 0:
        raise BenchmarkError(
            f"{describe(settings)} answered a prompt with nothing", hint="see the server's log"
        )
    return answer
