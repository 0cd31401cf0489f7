"""Choose where the step times of a pair come from: timed kernels, or the roofline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.served import ServedModel, ServedPair
from specdeploy.core.speed.measured_table import MeasuredTable, NotMeasured
from specdeploy.core.speed.work import work_of
from specdeploy.errors import ConfigError, MissingToolError

StepSource = Literal["auto", "physics", "silicon"]


class KernelTables(Protocol):
    """Has timed kernels of models."""

    def table(
        self, model: ServedModel, gpu: GpuSpec, *, checkpoint: Path
    ) -> MeasuredTable | NotMeasured:
        """Return what the kernels of ``model`` take on ``gpu``, or why that is not known.

        Raises:
            MissingToolError: there are no tables on this machine.
        """


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A pair with its step times, and where they come from in words."""

    pair: ServedPair
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Directories of a pair's models; None: a model without one of its own."""

    target: Path
    draft: Path | None = None


def choose_step_times(
    pair: ServedPair,
    gpu: GpuSpec,
    checkpoints: Checkpoints,
    *,
    source: StepSource,
    tables: KernelTables,
) -> StepTimes:
    """Return ``pair`` with timed kernels where ``source`` wants them.

    ``silicon`` wants them of both models, and must have the target's. ``auto`` wants them of a
    target for which they are nearer to measured servers than the roofline (docs/silicon.md), one
    with routed experts and without latent attention, and goes on where there are none.

    Raises:
        ConfigError: ``silicon``, and the target's kernels were not timed.
        MissingToolError: ``silicon``, and there are no tables on this machine.
    """
    if source == "physics" or (source == "auto" and not _is_nearer(pair.target)):
        return StepTimes(pair)
    try:
        found = tables.table(pair.target, gpu, checkpoint=checkpoints.target)
    except MissingToolError:
        if source == "silicon":
            raise
        return StepTimes(pair)
    if isinstance(found, NotMeasured):
        return _without(pair, found, source)
    timed = StepTimes(
        replace(pair, target=replace(pair.target, measured=found)),
        (f"the target's kernels take what they took with {found.origin}",),
    )
    if source == "auto" or pair.draft is None or checkpoints.draft is None:
        return timed
    drafting = tables.table(pair.draft, gpu, checkpoint=checkpoints.draft)
    if isinstance(drafting, NotMeasured):
        return timed
    return StepTimes(
        replace(timed.pair, draft=replace(pair.draft, measured=drafting)),
        (*timed.told, f"the draft's kernels take what they took with {drafting.origin}"),
    )


def _is_nearer(model: ServedModel) -> bool:
    work = work_of(model)
    return work.expert_bytes > 0 and not work.latent


def _without(pair: ServedPair, found: NotMeasured, source: StepSource) -> StepTimes:
    if source == "silicon":
        raise ConfigError(
            f"the target's kernels were not timed: {found.reason}",
            hint="leave --source out, or pass --source physics",
        )
    return StepTimes(pair, (f"the target's step times are computed: {found.reason}",))
