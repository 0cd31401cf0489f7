"""Classic against speculative generation on the same prompts, as paired rounds."""

from __future__ import annotations

from statistics import median
from typing import Literal

from pydantic import Field

from specdeploy.core.record import Document, Record
from specdeploy.core.repository import Method, Shape

Arm = Literal["classic", "speculative"]


class Settings(Record):
    """One way to serve an arm."""

    arm: Arm
    shape: Shape
    method: Method
    precision: str
    threads: int = Field(description="CPU threads per model process.")
    draft_length: int = Field(description="Tokens proposed per step; 0 on the classic arm.")


class Answer(Record):
    """What one request showed. Times are in seconds, from the moment it was sent."""

    output_tokens: int
    ttft_s: float = Field(description="To the first chunk that holds text.")
    first_chunk_tokens: int = Field(description="Tokens in that chunk; speculation sends runs.")
    latency_s: float = Field(description="To the final response, which may hold no text.")
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    steps: int = Field(default=0, description="Draft-then-verify rounds; 0 on the classic arm.")
    text: str


class ArmMetrics(Record):
    """One arm over one or more rounds.

    ``None`` where the arm has no such number: nothing was drafted, or no gap was seen.
    """

    requests: int
    output_tokens: int
    tokens_per_s: float = Field(description="Output tokens / summed request latency.")
    ttft_ms: float = Field(description="Median over requests.")
    itl_ms: float | None = Field(
        description="Time after the first chunk / tokens after it, over all requests."
    )
    acceptance_rate: float | None = Field(description="Accepted / drafted tokens.")
    tokens_per_step: float | None = Field(description="Output tokens / steps, bonus included.")


class Comparison(Record):
    """Both arms of one shape, and their ratio round by round."""

    classic: Settings
    speculative: Settings
    classic_metrics: ArmMetrics
    speculative_metrics: ArmMetrics
    rounds: int
    prompts_per_round: int
    max_tokens: int
    speedup: float = Field(description="Median over rounds of the ratio of tokens/s.")
    speedup_low: float = Field(description="Smallest ratio of a round.")
    speedup_high: float = Field(description="Largest ratio of a round.")
    identical_answers: int = Field(description="Requests whose text was equal in both arms.")
    candidates: int = Field(description="Settings tried on other rounds to choose these two.")


class ComparisonReport(Document):
    """The whole demo: one comparison for each shape."""

    target: str
    draft: str
    comparisons: list[Comparison]
    machine: dict[str, str | int] = {}


class Round(Record):
    """The same prompts through both arms, request by request in turn."""

    classic: list[Answer]
    speculative: list[Answer]

    @property
    def speedup(self) -> float:
        """Ratio of the arms' tokens/s on these prompts."""
        return tokens_per_second(self.speculative) / tokens_per_second(self.classic)


def tokens_per_second(answers: list[Answer]) -> float:
    """Return output tokens over summed latency, the speed of one user at concurrency 1."""
    return sum(a.output_tokens for a in answers) / sum(a.latency_s for a in answers)


def summarize_arm(answers: list[Answer]) -> ArmMetrics:
    """Return the metrics of one arm; raises ValueError when there is no answer."""
    if not answers:
        raise ValueError("no answers to summarize")
    tokens = sum(a.output_tokens for a in answers)
    later = sum(a.output_tokens - a.first_chunk_tokens for a in answers)
    drafted = sum(a.drafted_tokens for a in answers)
    steps = sum(a.steps for a in answers)
    return ArmMetrics(
        requests=len(answers),
        output_tokens=tokens,
        tokens_per_s=tokens_per_second(answers),
        ttft_ms=1000.0 * median(a.ttft_s for a in answers),
        itl_ms=1000.0 * sum(a.latency_s - a.ttft_s for a in answers) / later if later else None,
        acceptance_rate=sum(a.accepted_tokens for a in answers) / drafted if drafted else None,
        tokens_per_step=tokens / steps if steps else None,
    )


class Protocol(Record):
    """How a comparison was made."""

    prompts_per_round: int
    max_tokens: int
    candidates: int


def summarize_comparison(
    classic: Settings, speculative: Settings, rounds: list[Round], protocol: Protocol
) -> Comparison:
    """Return the comparison of two arms; raises ValueError when there is no round."""
    if not rounds:
        raise ValueError("no rounds to summarize")
    ratios = [r.speedup for r in rounds]
    pairs = [(c, s) for r in rounds for c, s in zip(r.classic, r.speculative, strict=True)]
    return Comparison(
        classic=classic,
        speculative=speculative,
        classic_metrics=summarize_arm([c for c, _ in pairs]),
        speculative_metrics=summarize_arm([s for _, s in pairs]),
        rounds=len(rounds),
        prompts_per_round=protocol.prompts_per_round,
        max_tokens=protocol.max_tokens,
        speedup=median(ratios),
        speedup_low=min(ratios),
        speedup_high=max(ratios),
        identical_answers=sum(c.text == s.text for c, s in pairs),
        candidates=protocol.candidates,
    )
