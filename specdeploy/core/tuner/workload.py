"""The load that a point is chosen for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from specdeploy.core.config import CategoryMix, WorkloadSection

DEFAULT_INPUT_LEN: Final = 1024
DEFAULT_OUTPUT_LEN: Final = 256
DEFAULT_CONCURRENCY: Final = 8
CONCURRENCIES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
NO_MIX: Final = CategoryMix()
_SHORTEST_ANSWER: Final = 2


@dataclass(frozen=True, slots=True)
class Lengths:
    """A length over the requests: the mean decides time, the longest decides room."""

    mean: float
    longest: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What every request must keep; None: no limit. Milliseconds."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests, how many at once, and what they must keep.

    Attributes:
        prompt: Prompt tokens.
        answer: Answer tokens, at least 2.
        concurrency: Requests in flight that a point may be chosen for, in rising order.
        table: Requests in flight that the answer is told for.
        request_rate: Requests per second, where the load is given so.
        mix: Relative weight of each kind of request.
        limits: What a request must keep.
        assumptions: What was not given.
        assumed_concurrency: Nobody said how many requests are in flight.
        room: Prompt + answer that the server is built for, where the user set it.
    """

    prompt: Lengths
    answer: Lengths
    concurrency: tuple[int, ...]
    table: tuple[int, ...] = CONCURRENCIES
    request_rate: float | None = None
    mix: CategoryMix = NO_MIX
    limits: Limits = Limits()
    assumptions: tuple[str, ...] = ()
    assumed_concurrency: bool = False
    room: int | None = None

    @property
    def planned(self) -> int:
        """The largest number of requests in flight that the server is meant for."""
        return self.concurrency[-1]

    @property
    def max_seq_len(self) -> int:
        """Prompt and answer of the longest request, or what the user set."""
        return self.room or self.prompt.longest + self.answer.longest


def plan_workload(section: WorkloadSection, max_seq_len: int | None = None) -> Workload:
    """Return the workload with nothing left open; what is missing is assumed and said."""
    slo = section.slo
    asked = _listed(section.concurrency)
    concurrency = tuple(sorted(set(asked))) or (DEFAULT_CONCURRENCY,)
    return Workload(
        prompt=_lengths(_listed(section.input_len) or [DEFAULT_INPUT_LEN]),
        answer=_lengths(
            [max(each, _SHORTEST_ANSWER) for each in _listed(section.output_len)]
            or [DEFAULT_OUTPUT_LEN]
        ),
        concurrency=concurrency,
        table=tuple(sorted({*CONCURRENCIES, *concurrency})),
        request_rate=section.request_rate,
        mix=section.categories,
        limits=Limits(slo.ttft_ms, slo.tpot_ms, slo.e2e_ms),
        assumptions=tuple(_assumptions(section)),
        assumed_concurrency=not asked,
        room=max_seq_len,
    )


def _lengths(sample: Sequence[int]) -> Lengths:
    return Lengths(mean=float(mean(sample)), longest=max(sample))


def _listed(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else value


def _assumptions(section: WorkloadSection) -> Iterator[str]:
    if not _listed(section.input_len):
        yield f"prompts of {DEFAULT_INPUT_LEN} tokens (workload.input_len is not set)"
    if not _listed(section.output_len):
        yield f"answers of {DEFAULT_OUTPUT_LEN} tokens (workload.output_len is not set)"
    if not _listed(section.concurrency) and section.request_rate is None:
        yield f"{DEFAULT_CONCURRENCY} requests in flight (workload.concurrency is not set)"
