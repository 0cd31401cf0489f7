"""What the search is asked: models, GPUs, load, and what is fixed already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from specdeploy.core.acceptance import MixedCurve
from specdeploy.core.config import Objective
from specdeploy.core.hardware import GpuSpec
from specdeploy.core.memory import DEFAULT_LIMIT, GpuMemory, MemoryLimit
from specdeploy.core.models import ModelSpec
from specdeploy.core.precision import AUTO
from specdeploy.core.repository import Method, Shape
from specdeploy.core.speed import DEFAULT, Constants
from specdeploy.core.tuner.workload import Workload

DRAFT_LENGTHS: Final = (*range(1, 11), 12, 14, 16)
BATCH_SIZES: Final = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
NUM_TOKENS: Final = (1024, 2048, 4096, 8192, 16384)
DRAFT_SHARES: Final = (0.0, 0.05, 0.1, 0.2, 0.4)
TENSOR_PARALLEL: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to draft.

    Attributes:
        name: What it is called in the answer: the draft's directory, or the method.
        method: How tokens are drafted; ``none`` is serving without speculation.
        spec: The draft model, where the method has one.
        precision: That the draft is served in.
        acceptance: None when nobody knows it.
    """

    name: str
    method: Method
    spec: ModelSpec | None = None
    precision: str = AUTO
    acceptance: MixedCurve | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """What the user decided; None is searched. A share of 0 stands for equal token capacity."""

    draft_length: int | None = None
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    target_tp: int | None = None
    draft_tp: int | None = None
    target_kv_dtype: str | None = None
    draft_kv_dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Axes:
    """Values of the grid inside one variant, each once and in rising order.

    Attributes:
        draft_length: At least 1; serving without speculation is a variant of its own.
        max_batch_size: Requests held at once.
        max_num_tokens: Tokens of one forward pass.
        draft_share: Share of the KV memory that the draft's pool takes; 0 stands for pools of
            equal token capacity.
        concurrency: Requests in flight.
    """

    draft_length: tuple[int, ...]
    max_batch_size: tuple[int, ...]
    max_num_tokens: tuple[int, ...]
    draft_share: tuple[float, ...]
    concurrency: tuple[int, ...]

    @classmethod
    def of(
        cls,
        *,
        draft_length: Sequence[int] = DRAFT_LENGTHS,
        max_batch_size: Sequence[int] = BATCH_SIZES,
        max_num_tokens: Sequence[int] = NUM_TOKENS,
        draft_share: Sequence[float] = DRAFT_SHARES,
        concurrency: Sequence[int],
    ) -> Axes:
        """Return the axes with their values sorted: the order that they come in says nothing."""
        return cls(
            tuple(sorted(set(draft_length))),
            tuple(sorted(set(max_batch_size))),
            tuple(sorted(set(max_num_tokens))),
            tuple(sorted(set(draft_share))),
            tuple(sorted(set(concurrency))),
        )


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that the search needs.

    Attributes:
        target: The target model.
        precision: That the target is served in.
        candidates: Ways to draft; ``none`` need not be among them.
        gpu: What each GPU is.
        memory: What each GPU has.
        gpu_count: GPUs that may be used.
        workload: The load.
        objective: What the best point is best at.
        shape: How the pair is served: two engines, or one process.
        fixed: What is decided already.
        constants: Of the speed model.
        limit: How much of a GPU may be filled.
        allow_lossy: A KV type that changes the target's numbers may be chosen.
    """

    target: ModelSpec
    candidates: tuple[Candidate, ...]
    gpu: GpuSpec
    memory: GpuMemory
    workload: Workload
    gpu_count: int = 1
    precision: str = AUTO
    objective: Objective = "latency"
    shape: Shape = "engine"
    fixed: Fixed = Fixed()
    constants: Constants = DEFAULT
    limit: MemoryLimit = DEFAULT_LIMIT
    allow_lossy: bool = False


def axes_of(question: Question) -> Axes:
    """Return the default grid, narrowed to what is fixed."""
    fixed, load = question.fixed, question.workload
    lengths = DRAFT_LENGTHS if fixed.draft_length is None else (fixed.draft_length,)
    batches = (*BATCH_SIZES, *load.concurrency)
    free = question.objective != "latency" and load.assumed_concurrency
    return Axes.of(
        draft_length=[length for length in lengths if length],
        max_batch_size=batches if fixed.max_batch_size is None else (fixed.max_batch_size,),
        max_num_tokens=NUM_TOKENS if fixed.max_num_tokens is None else (fixed.max_num_tokens,),
        concurrency=load.table if free or load.request_rate else load.concurrency,
    )
