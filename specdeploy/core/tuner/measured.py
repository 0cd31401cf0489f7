"""What measured runs say by themselves: no prediction, and nothing between the points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import Field

from specdeploy.core.record import Document, Record
from specdeploy.core.tuning import MeasuredVerdict


class MeasuredLoad(Record):
    """Output tokens per second of one request, at one number of requests in flight."""

    concurrency: int = Field(ge=1)
    baseline: float = Field(
        gt=0,
        description="Of a server with no draft loaded: one that has its draft switched off is "
        "slower, and would flatter speculation.",
    )
    speculative: float = Field(gt=0)


class MeasuredLoads(Document):
    """What was measured of a pair, load by load."""

    loads: list[MeasuredLoad] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """One run, and the rates of its parts in tokens per second.

    Attributes:
        generated: Tokens of the answer.
        drafted: Tokens proposed.
        accepted: Of these, accepted.
        draft_alone: The draft generating alone.
        plain: The target generating one token a step.
        verifying: The target reading drafted tokens in one pass.
    """

    generated: int
    drafted: int
    accepted: int
    draft_alone: float
    plain: float
    verifying: float


@dataclass(frozen=True, slots=True)
class ExpectedRate:
    """What the parts add up to, in tokens per second; a slower run pays overhead per step."""

    acceptance_rate: float
    plain_tokens: int
    drafted_rate: float
    total_rate: float
    speedup: float


def judge_measured(loads: Iterable[MeasuredLoad]) -> Iterator[MeasuredVerdict]:
    """Yield the verdict at each measured load; a load that was not measured has none."""
    for load in sorted(loads, key=lambda load: load.concurrency):
        speedup = load.speculative / load.baseline
        yield MeasuredVerdict(
            concurrency=load.concurrency,
            speedup=speedup,
            total_baseline=load.concurrency * load.baseline,
            total_speculative=load.concurrency * load.speculative,
            speculate=speedup > 1,
        )


def expected_rate(run: MeasuredRates) -> ExpectedRate:
    """Return what a run should reach if a step cost no more than its parts.

    Drafted tokens pass the draft and the target one after the other; the tokens that were not
    accepted from the draft are plain steps of the target.
    """
    plain_tokens = run.generated - run.accepted
    drafted_rate = 1 / (1 / run.draft_alone + 1 / run.verifying)
    seconds = plain_tokens / run.plain + run.drafted / drafted_rate
    total = run.generated / seconds
    return ExpectedRate(
        acceptance_rate=run.accepted / run.drafted,
        plain_tokens=plain_tokens,
        drafted_rate=drafted_rate,
        total_rate=total,
        speedup=total / run.plain,
    )
