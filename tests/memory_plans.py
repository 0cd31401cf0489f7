"""Short ways to ask for memory plans."""

from __future__ import annotations

from dataclasses import replace

from checkpoint_files import config_of, facts_of
from planning_models import model_named

from specdeploy.core.checkpoint import CheckpointContents
from specdeploy.core.describe import describe_checkpoint
from specdeploy.core.hardware import find_gpu
from specdeploy.core.memory import GpuMemory, MemoryLimit, MemoryRequest
from specdeploy.core.memory_records import GpuLedger, MemoryPlan
from specdeploy.core.models import ModelSpec
from specdeploy.core.served import ServedModel, ServedPair, serve_model
from specdeploy.units import GIB

ALL = MemoryLimit.of_total(1.0)


def exactly(size: float) -> GpuMemory:
    """Return a GPU whose whole memory, in bytes, is free."""
    return GpuMemory(total_bytes=int(size), free_bytes=int(size))


def known(name: str) -> GpuMemory:
    """Return the memory of a GPU of the table."""
    return GpuMemory.of(find_gpu(name))


def served(name: str, precision: str = "bf16", *, tp: int = 1, kv: str = "bf16") -> ServedModel:
    """Return a recorded model as it is served."""
    return serve_model(model_named(name), precision=precision, kv_dtype=kv, tp=tp)


def changed(name: str, **sizes: int) -> ModelSpec:
    """Return a recorded model with other sizes."""
    config = {**config_of(facts_of(name)), **sizes}
    return describe_checkpoint(CheckpointContents(name=name, config=config))


def weightless(model: ServedModel) -> ServedModel:
    """Return a model whose weights are in memory already."""
    return replace(model, weight_bytes=0)


def weighing(model: ServedModel, gib: float) -> ServedModel:
    """Return a model with weights of a known size per GPU."""
    return replace(model, weight_bytes=int(gib * GIB))


def alone(model: ServedModel) -> ServedPair:
    """Return a target without speculation."""
    return ServedPair(model)


def drafting(target: ServedModel, draft: ServedModel, *, apart: bool = False) -> ServedPair:
    """Return a target with a draft model."""
    return ServedPair(target, draft, "draft_target", draft_apart=apart)


def part(ledger: GpuLedger, name: str) -> int:
    """Return a component's bytes."""
    return next(line.bytes for line in ledger.components if line.name == name)


def changes(plan: MemoryPlan) -> dict[str, int | float | str]:
    """Return the first suggestion of each kind."""
    found: dict[str, int | float | str] = {}
    for suggestion in plan.suggestions:
        found.setdefault(suggestion.change, suggestion.value)
    return found


def totals(plan: MemoryPlan) -> list[int]:
    """Return every GPU's total."""
    return [ledger.total_bytes for ledger in plan.gpus]


def small_request(pair: ServedPair, gpu: GpuMemory | tuple[GpuMemory, ...]) -> MemoryRequest:
    """Return a request of ordinary sizes."""
    return MemoryRequest(pair, gpu, 4096, max_batch_size=4, draft_length=4)
