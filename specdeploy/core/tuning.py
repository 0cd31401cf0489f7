"""``tuning.json``: the part that a build reads, and everything that ``tune`` says beside it."""

from __future__ import annotations

import math
from typing import Final, Literal

from pydantic import ConfigDict, Field

from specdeploy.core.config import Objective
from specdeploy.core.deployment import TunedServing
from specdeploy.core.memory_records import LoadOrder, MemoryPlan
from specdeploy.core.record import Document, Record
from specdeploy.core.repository import Method, Shape
from specdeploy.core.schedule import DraftLengthSchedule, ScheduleTier

# Engines refuse 1, and what else runs on the GPU needs a little.
LARGEST_FRACTION: Final = 0.95


class TuningChoice(Record):
    """The chosen point. A value that is not there was not decided.

    What else the file says about the choice is for people, hence ``extra="ignore"``.
    """

    model_config = ConfigDict(extra="ignore")

    draft_length: int | None = Field(default=None, ge=0)
    max_batch_size: int | None = Field(default=None, ge=1)
    max_num_tokens: int | None = Field(default=None, ge=1)
    max_seq_len: int | None = Field(default=None, ge=1)


class TunedPool(Record):
    """The KV pool of one model, as far as a build reads it."""

    model_config = ConfigDict(extra="ignore")

    bytes_per_token: int = Field(ge=0)
    max_tokens_in_paged_kv_cache: int = Field(ge=0)
    kv_cache_free_gpu_mem_fraction: float = Field(ge=0, le=1)

    @property
    def size_bytes(self) -> int:
        """What the pool takes on one GPU."""
        return self.bytes_per_token * self.max_tokens_in_paged_kv_cache

    @property
    def free_bytes(self) -> float:
        """What is free when its model has loaded; 0 where no pool was planned."""
        share = self.kv_cache_free_gpu_mem_fraction
        return self.size_bytes / share if share else 0.0


class TunedMemory(Record):
    """The memory plan, as far as a build reads it."""

    model_config = ConfigDict(extra="ignore")

    load_order: LoadOrder
    target: TunedPool
    draft: TunedPool | None = None

    @property
    def shared_fraction(self) -> float:
        """The share of free memory that holds both pools, when both models have loaded.

        The plan's own fractions are of what is free when each model loads: the last one's is
        free beside the other's pool.
        """
        if self.draft is None:
            return self.target.kv_cache_free_gpu_mem_fraction
        pools = (self.draft, self.target)
        other, last = pools if self.load_order == "draft_first" else pools[::-1]
        free = last.free_bytes + other.size_bytes
        share = (last.size_bytes + other.size_bytes) / free if free else 0.0
        return min(LARGEST_FRACTION, math.ceil(round(share * 100, 6)) / 100)


class TunedSchedule(Record):
    """The schedule, as far as a build reads it."""

    model_config = ConfigDict(extra="ignore")

    tiers: list[ScheduleTier] = Field(min_length=1)


class Tuning(Document):
    """``tuning.json``, as far as a build reads it."""

    model_config = ConfigDict(extra="ignore")

    choice: TuningChoice
    schedule: TunedSchedule | None = None
    memory: TunedMemory | None = None

    @property
    def serving(self) -> TunedServing:
        """What it decides beside the numbers that have a setting of their own."""
        return TunedServing(
            tiers=self.schedule.tiers if self.schedule else [],
            kv_fraction=(self.memory.shared_fraction or None) if self.memory else None,
        )


class TuningFile(Record):
    """A choice, and the file it was read from."""

    path: str
    content_digest: str = Field(description="SHA-256 of the whole file's JSON in canonical form.")
    choice: TuningChoice
    serving: TunedServing = TunedServing()


class Predicted(Record):
    """A predicted number and where ``level`` of measurements are expected."""

    value: float
    low: float
    high: float
    level: float


class ChosenPoint(Record):
    """One feasible combination of every setting; the first four are what a build reads."""

    draft_length: int = Field(description="0: no draft is loaded.")
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    method: Method
    draft: str | None = Field(description="The draft's name; null for none and prompt lookup.")
    target_tp: int
    draft_tp: int | None
    draft_apart: bool = Field(description="The draft is on GPUs of its own.")
    target_kv_dtype: str
    draft_kv_dtype: str | None
    draft_kv_share: float | None = Field(
        description="Share of KV memory for the draft's pool; null: equal token capacity."
    )
    gpus: int
    concurrency: int = Field(description="Requests in flight that the numbers are for.")
    resident: int = Field(description="Requests that memory holds at once; others wait.")
    e2e_ms: float = Field(description="Mean time of a whole request.")
    requests_per_s: float
    gpu_s_per_request: float
    memory_bytes: int = Field(description="On the GPU with the least room.")


class ConcurrencyRow(Record):
    """What to do at one number of requests in flight, on a server sized for it."""

    concurrency: int
    draft_length: int = Field(description="Best here; 0: no draft.")
    speedup: Predicted = Field(
        description="Of tokens per second per request, against a server with no draft loaded."
    )
    whole_request_gain: float = Field(
        description="Time of a whole request without a draft / with it; waiting counts."
    )
    tokens_per_step: float
    tpot_ms: float
    ttft_ms: float
    baseline_tpot_ms: float
    baseline_ttft_ms: float
    tokens_per_s: float = Field(description="Output tokens of all requests together.")
    resident: int = Field(description="Requests that memory holds at once.")
    memory_bytes: int = Field(description="On the GPU with the least room.")
    break_even_acceptance: float | None = Field(
        description="Least acceptance that pays here; null: not even 1 does."
    )


class MeasuredVerdict(Record):
    """What a measurement says to do at exactly its load."""

    concurrency: int
    speedup: float = Field(description="Of tokens per second per request.")
    total_baseline: float = Field(description="Tokens per second of all requests together.")
    total_speculative: float
    speculate: bool


class IfRow(Record):
    """What would be chosen if acceptance were so."""

    acceptance: float
    concurrency: int
    draft_length: int
    speedup: float


class AcceptanceFlip(Record):
    """The best draft length changes where an acceptance is under, or over, a value."""

    side: Literal["under", "over"]
    acceptance: float
    draft_length: int


class CategorySensitivity(Record):
    """How the choice moves with the acceptance of one kind of request."""

    category: str
    acceptance: Predicted = Field(description="As one number for every position.")
    flips: list[AcceptanceFlip]
    regret: float = Field(
        description="Share of time lost by keeping the choice, at worst inside the interval."
    )


class RequestCost(Record):
    """What one request costs; money only when the price of a GPU hour is given."""

    gpu_s: float
    money: float | None


class CostComparison(Record):
    """A request without and with speculation, each on its own best server."""

    price_per_gpu_hour: float | None
    classic: RequestCost | None = Field(description="null: no such server is feasible.")
    speculative: RequestCost | None


class DraftStepCost(Record):
    """One draft step against one target step, at one tensor parallelism of the draft."""

    tp: int
    step_ms: float
    cost_ratio: float = Field(description="Draft step / target step.")


class DraftCosts(Record):
    """What a draft costs, and whether it can pay at an acceptance of 0.7."""

    parameter_ratio: float = Field(description="Parameters, draft / target.")
    by_tp: list[DraftStepCost]
    warning: str | None = None


class TuningReport(Document):
    """What ``specdeploy tune`` finds. A build reads ``choice`` of it, as ``Tuning``."""

    verdict: Literal["speculate", "off"]
    reason: str
    target: str
    gpu: str
    gpu_count: int
    objective: Objective
    shape: Shape
    acceptance_source: str | None = Field(description="null: no acceptance is known.")
    choice: ChosenPoint
    classic: ChosenPoint | None = Field(description="The best point with no draft loaded.")
    frontier: list[ChosenPoint] = Field(
        description="No other point beats these in time, cost and rate at once."
    )
    by_concurrency: list[ConcurrencyRow]
    crossover: int | None = Field(
        description="Requests in flight from which on no draft is better; null: not seen."
    )
    measured: list[MeasuredVerdict] = Field(
        default=[], description="What measured runs say; no load between them is answered."
    )
    if_acceptance: list[IfRow] = []
    sensitivity: list[CategorySensitivity] = []
    schedule: DraftLengthSchedule | None = None
    draft_costs: DraftCosts | None = None
    cost: CostComparison
    memory: MemoryPlan
    combinations: int
    rejected: dict[str, int] = Field(description="How many combinations lost, by reason.")
    assumptions: list[str]
    warnings: list[str] = []
