"""Memory and speed of deployments as they are described, many at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.memory import (
    BINDINGS,
    DEFAULT_LIMIT,
    GpuMemory,
    MemoryGrid,
    MemoryLimit,
    MemoryPlan,
    MemoryRequest,
    memory_grid,
)
from specdeploy.core.record import Document, Record
from specdeploy.core.served import ServedPair
from specdeploy.core.speed import DEFAULT, Constants, Interval, Load, Speed, estimate_speed
from specdeploy.core.speed.grid import Ways, serve_both_ways
from specdeploy.core.speed.serving import Serving
from specdeploy.core.speed.steady import Steady
from specdeploy.core.tuning import DraftCosts
from specdeploy.units import MS_PER_S

Floats = NDArray[np.float64]
Ends = tuple[float, float]

TYPICAL: Final = Load(8, 1024, 256)


class EstimateMemory(Record):
    """Memory on the GPU with the least room."""

    fixed_bytes: int = Field(description="Weights, activations, buffers: everything but KV.")
    pool_bytes: int = Field(description="What is left for the KV cache.")
    request_bytes: int = Field(description="KV cache of one whole request.")
    binding: str = Field(description="What stops a larger plan: none, batch, request, ...")
    plan: MemoryPlan | None = Field(default=None, description="Line by line, for one deployment.")


class Estimate(Document):
    """What ``specdeploy estimate`` predicts of one deployment."""

    fits: bool = Field(description="The weights and one whole request fit.")
    max_resident: int = Field(description="Whole requests that memory holds at once.")
    baseline: Speed | None = Field(description="With no draft loaded; null: that does not fit.")
    speculative: Speed | None = Field(
        description="null: it does not fit, or acceptance is not known. Equal to the baseline "
        "when nothing is drafted."
    )
    speedup: float | None = Field(description="Of tokens per second per request, at this load.")
    memory: EstimateMemory
    bound_by: str | None = Field(description="The term that takes most of a step.")
    draft_costs: DraftCosts | None = Field(
        default=None, description="For one deployment that has a draft model."
    )
    interval: dict[str, Interval] = Field(description="By number, such as baseline.tpot_ms.")
    sources: dict[str, str] = Field(
        description="The weakest by number: measured table, calibrated, fitted, physics, assumed."
    )
    assumptions: list[str]


@dataclass(frozen=True, slots=True)
class TokensPerStep:
    """Expected tokens of one step, and the ends of what acceptance leaves open."""

    middle: float
    low: float
    high: float


ONE_TOKEN: Final = TokensPerStep(1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class PointLoad:
    """The sizes of one deployment; ``tokens`` is None where acceptance is not known."""

    batch: int
    input_len: int
    output_len: int
    draft_length: int
    max_num_tokens: int
    tokens: TokensPerStep | None

    @property
    def drafts(self) -> bool:
        """Whether there is speculation to predict."""
        return self.draft_length > 0 and self.tokens is not None


@dataclass(frozen=True)
class Deployed:
    """A pair on its GPUs, with what is the same for all of its loads."""

    pair: ServedPair
    gpu: GpuSpec
    memory: GpuMemory
    constants: Constants = DEFAULT
    limit: MemoryLimit = DEFAULT_LIMIT

    @cached_property
    def serving(self) -> Serving:
        """The pair with its machine numbers worked out."""
        return Serving.of(self.pair, self.gpu, self.constants)

    @cached_property
    def plain(self) -> _Uncertainty:
        """Uncertainty without speculation."""
        return _uncertainty(self, 0)

    @cached_property
    def drafting(self) -> _Uncertainty:
        """Uncertainty with it."""
        return _uncertainty(self, 4)


@dataclass(frozen=True, slots=True)
class _Uncertainty:
    factors: Mapping[str, Ends]
    level: float
    sources: Mapping[str, str]
    assumptions: Sequence[str]


def estimate_loads(deployed: Deployed, loads: Sequence[PointLoad]) -> list[dict[str, object]]:
    """Return an ``Estimate``, as the values of its JSON, for each load."""
    table = _Table(deployed, loads)
    return [table.point(at) for at in range(len(loads))]


def memory_request(deployed: Deployed, load: PointLoad) -> MemoryRequest:
    """Return what memory is planned for."""
    return MemoryRequest(
        pair=deployed.pair,
        gpu=deployed.memory,
        max_seq_len=load.input_len + load.output_len,
        limit=deployed.limit,
        max_batch_size=load.batch,
        max_num_tokens=load.max_num_tokens,
        draft_length=load.draft_length,
    )


class _Table:
    """Every number of many loads, one column each."""

    def __init__(self, deployed: Deployed, loads: Sequence[PointLoad]) -> None:
        self._deployed, self._loads = deployed, loads
        self._batch = np.array([load.batch for load in loads])
        self._output = np.array([load.output_len for load in loads])
        self._length = np.array([load.draft_length * load.drafts for load in loads])
        plain = replace(deployed, pair=ServedPair(deployed.pair.target))
        self._memory = self._memory_of(deployed, [load.draft_length for load in loads])
        self._plain_memory = self._memory_of(plain, [0] * len(loads))
        tokens = [load.tokens or ONE_TOKEN for load in loads]
        ways = self._ways([each.middle for each in tokens])
        self._baseline = self._numbers(ways.baseline)
        self._fast = self._numbers(ways.speculative)
        self._ends = tuple(
            self._numbers(self._ways([getattr(each, end) for each in tokens]).speculative)
            for end in ("low", "high")
        )
        terms = ways.speculative.step.by_name()
        self._terms = list(terms)
        shape = (len(loads),)
        stacked = np.stack([np.broadcast_to(term, shape) for term in terms.values()])
        self._bound = stacked.argmax(axis=0)

    def point(self, at: int) -> dict[str, object]:
        """Return one load's estimate as JSON values."""
        load, memory = self._loads[at], self._memory
        fits = bool(memory.fits[at])
        known = self._deployed.drafting if load.drafts else self._deployed.plain
        baseline = self._speed(self._baseline, at, 1.0) if self._plain_memory.fits[at] else None
        fast = self._speculative(at, baseline)
        interval = self._intervals(at, known, baseline=baseline is not None, fast=fast is not None)
        gains = self._gains(at)
        return {
            "schema_version": 1,
            "fits": fits,
            "max_resident": int(memory.max_resident[at]),
            "baseline": baseline,
            "speculative": fast,
            "speedup": None if fast is None else gains[1],
            "memory": {
                "fixed_bytes": int(memory.fixed_bytes[at]),
                "pool_bytes": int(memory.pool_bytes[at]),
                "request_bytes": int(memory.request_bytes[at]),
                "binding": BINDINGS[int(memory.binding[at])],
                "plan": None,
            },
            "bound_by": self._terms[int(self._bound[at])] if fits else None,
            "draft_costs": None,
            "interval": interval,
            "sources": {name: known.sources[name] for name in interval},
            "assumptions": list(known.assumptions),
        }

    def _speculative(self, at: int, baseline: dict[str, float] | None) -> dict[str, float] | None:
        """Return the numbers with speculation; drafting nothing is the baseline itself."""
        load = self._loads[at]
        if baseline is None or not self._memory.fits[at]:
            return None
        if not load.draft_length:
            return dict(baseline)
        return self._speed(self._fast, at, load.tokens.middle) if load.tokens else None

    def _ends_of(self, at: int) -> tuple[Mapping[str, Floats], ...]:
        """Return the numbers at the low end, the middle and the high end of acceptance."""
        if not self._loads[at].drafts:
            return (self._baseline,) * 3
        low, high = self._ends
        return low, self._fast, high

    def _memory_of(self, deployed: Deployed, lengths: Sequence[int]) -> MemoryGrid:
        loads = self._loads
        return memory_grid(
            MemoryRequest(deployed.pair, deployed.memory, max_seq_len=1, limit=deployed.limit),
            batch=self._batch,
            draft_length=np.array(lengths),
            max_num_tokens=np.array([load.max_num_tokens for load in loads]),
            max_seq_len=np.array([load.input_len + load.output_len for load in loads]),
        )

    def _ways(self, tokens: Sequence[float]) -> Ways:
        load = Load(
            self._batch,
            np.array([load.input_len for load in self._loads]),
            self._output,
            resident=np.maximum(self._memory.max_resident, 1),
            resident_plain=np.maximum(self._plain_memory.max_resident, 1),
        )
        return serve_both_ways(
            self._deployed.serving,
            load,
            draft_length=self._length,
            tokens_per_step=np.array(tokens),
        )

    def _numbers(self, way: Steady) -> dict[str, Floats]:
        ttft, tpot = way.ttft, way.tpot
        numbers = {
            "ttft_ms": MS_PER_S * ttft,
            "tpot_ms": MS_PER_S * tpot,
            "tokens_per_s": self._batch * self._output / (ttft + (self._output - 1) * tpot),
            "tokens_per_s_per_request": 1 / tpot,
            "step_ms": MS_PER_S * way.step.total,
        }
        shape = self._batch.shape
        return {name: np.broadcast_to(value, shape) for name, value in numbers.items()}

    def _speed(self, numbers: Mapping[str, Floats], at: int, tokens: float) -> dict[str, float]:
        found = {name: float(values[at]) for name, values in numbers.items()}
        return {**found, "tokens_per_step": tokens}

    def _gains(self, at: int) -> list[float]:
        name = "tokens_per_s_per_request"
        return [float(way[name][at] / self._baseline[name][at]) for way in self._ends_of(at)]

    def _intervals(
        self, at: int, known: _Uncertainty, *, baseline: bool, fast: bool
    ) -> dict[str, dict[str, float]]:
        """Return intervals: the model's, stretched by what acceptance leaves open."""
        found: dict[str, tuple[float, float]] = {}
        if baseline:
            for name, values in self._baseline.items():
                found[f"baseline.{name}"] = (float(values[at]),) * 2
        if fast:
            low, _, high = self._ends_of(at)
            for name in self._fast:
                ends = sorted((float(low[name][at]), float(high[name][at])))
                found[f"speculative.{name}"] = (ends[0], ends[1])
            gains = self._gains(at)
            found["speedup"] = (gains[0], gains[2])
        return {
            name: {
                "low": ends[0] * known.factors[name][0],
                "high": ends[1] * known.factors[name][1],
                "level": known.level,
            }
            for name, ends in found.items()
            if name in known.factors
        }


def _uncertainty(deployed: Deployed, draft_length: int) -> _Uncertainty:
    """Return the ends of every interval over its value, which are the same at every load."""
    found = estimate_speed(
        deployed.pair if draft_length else ServedPair(deployed.pair.target),
        deployed.gpu,
        TYPICAL,
        draft_length=draft_length,
        tokens_per_step=2.0,
        constants=deployed.constants,
    )
    values: dict[str, float] = {"speedup": found.speedup}
    for name, speed in (("baseline", found.baseline), ("speculative", found.speculative)):
        values |= {f"{name}.{key}": value for key, value in dict(speed).items()}
    factors = {
        name: (interval.low / values[name], interval.high / values[name])
        for name, interval in found.intervals.items()
    }
    level = next(iter(found.intervals.values())).level
    return _Uncertainty(factors, level, found.sources, found.assumptions)
