"""Choose how to serve a pair, and write the choice down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from specdeploy.core.compat import Member, doubts_of
from specdeploy.core.memory import MemoryLimit
from specdeploy.core.models import ModelSpec
from specdeploy.core.release_profile import DraftLenSchedule
from specdeploy.core.releases import decide_version, find_release
from specdeploy.core.resolution import LoadedConfig, shape_of
from specdeploy.core.speed import DEFAULT, Constants
from specdeploy.core.tuner.answer import Said, tune
from specdeploy.core.tuner.measured import MeasuredLoad
from specdeploy.core.tuner.question import TENSOR_PARALLEL, Question
from specdeploy.core.tuner.workload import plan_workload
from specdeploy.core.tuning import TuningReport
from specdeploy.errors import ConfigError, InfeasiblePlanError
from specdeploy.workflows.deployment import TUNING_NAME, locate_models
from specdeploy.workflows.device_ports import DeviceProbe
from specdeploy.workflows.inspect import locate
from specdeploy.workflows.ports import CheckpointReader, HubResolver
from specdeploy.workflows.tuning_ports import ReleaseProfiles, TuningFiles
from specdeploy.workflows.tuning_question import (
    Acceptances,
    Gpus,
    candidates_of,
    find_gpus,
    fixed_of,
    number_or_none,
    open_settings,
    read_acceptances,
    settings_to_write,
)

# TensorRT engines are driven by Triton's models, which read no schedule.
_NO_SCHEDULE: Final = DraftLenSchedule(keys="absent", source="engines take none")


@dataclass(frozen=True, slots=True)
class TuneTools:
    """What tuning reads with and writes with."""

    checkpoints: CheckpointReader
    hub: HubResolver
    devices: DeviceProbe
    files: TuningFiles
    releases: ReleaseProfiles


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """What to tune.

    Attributes:
        settings: The file, the environment and the flags, merged.
        cwd: Where relative paths of the fields below start.
        acceptance: ``[NAME=]A``, a file, or ``preset:NAME``, each.
        drafts: More draft checkpoints to compare.
        calibration: Constants fitted to the user's own measurements.
        measured: Speeds of the pair at some loads; they win over predictions there.
        memory_limit: Share of each whole GPU that may be filled, if not the default limit.
    """

    settings: LoadedConfig
    cwd: Path
    acceptance: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    calibration: Path | None = None
    measured: Path | None = None
    memory_limit: float | None = None


def tune_pair(request: TuneRequest, *, tools: TuneTools) -> TuningReport:
    """Read everything, search, and return what was found.

    Raises:
        InfeasiblePlanError: nothing is feasible; names what binds and what would fit.
        MissingToolError: no GPU is named, and there is none here.
        ConfigError: a path, a GPU, an acceptance or a size is wrong.
        CheckpointError: a checkpoint cannot be read.
    """
    loaded = request.settings
    target, drafts = _read_models(request, tools)
    names = [*drafts, *({"ngram"} - set(drafts))]
    acceptances = read_acceptances(request.acceptance, names, cwd=request.cwd, files=tools.files)
    named = loaded.config.hardware.gpu is not None
    gpus = find_gpus(loaded, None if named else tools.devices.probe())
    question = Question(
        target=target,
        candidates=candidates_of(loaded, drafts, acceptances),
        gpu=gpus.gpu,
        memory=gpus.memory,
        workload=plan_workload(
            loaded.config.workload, number_or_none(loaded.config.limits.max_seq_len)
        ),
        precision=loaded.config.target.precision,
        objective=loaded.config.objective,
        shape=shape_of(loaded.config),
        fixed=fixed_of(loaded),
        constants=_constants(request, tools),
        limit=MemoryLimit.given(request.memory_limit),
        allow_lossy=loaded.config.allow_lossy,
    )
    said = _said(request, acceptances, gpus, tools)
    said = replace(said, warnings=(*said.warnings, *_doubts(question)))
    report = _with_enough_gpus(question, said, gpus)
    left = list(settings_to_write(report.choice, loaded, {"target": target, **drafts}))
    if not left:
        return report
    told = (
        "a build takes draft length and sizes from tuning.json; write the rest into the file: "
        f"{', '.join(left)}"
    )
    return report.evolve(warnings=[*report.warnings, told])


def keep(
    report: TuningReport, plots: Mapping[str, str], workspace: Path, files: TuningFiles
) -> Path:
    """Write the report and its plots into the workspace, and return the report's path.

    Raises:
        ConfigError: a file cannot be written.
    """
    text = report.model_dump_json(indent=2) + "\n"
    # The report comes last: it declares the others whole.
    files.write_texts(workspace, {**plots, TUNING_NAME: text})
    return workspace / TUNING_NAME


def _read_models(request: TuneRequest, tools: TuneTools) -> tuple[ModelSpec, dict[str, ModelSpec]]:
    loaded = request.settings
    config = loaded.config
    alone = config.draft is None and config.method == "draft_target"
    if alone and loaded.source("method").kind == "default":
        loaded = loaded.evolve(config=config.evolve(method="ngram"))
    paths = locate_models(loaded, hub=tools.hub)
    found = [] if paths.draft is None else [paths.draft]
    found += [locate(draft, tools.hub) for draft in request.drafts]
    drafts = {path.name: tools.checkpoints.read_model(path) for path in found}
    if len(drafts) < len(found):
        raise ConfigError(
            "two drafts have the same directory name", hint="rename one: names tell them apart"
        )
    return tools.checkpoints.read_model(paths.target), drafts


def _with_enough_gpus(question: Question, said: Said, gpus: Gpus) -> TuningReport:
    """Tune on the GPUs there are; when nobody said how many, on the fewest that will do."""
    if gpus.count is not None:
        return tune(replace(question, gpu_count=gpus.count), said)
    least = question.fixed.target_tp or 1
    refused: InfeasiblePlanError | None = None
    for count in (count for count in TENSOR_PARALLEL if count >= least):
        told = f"{count} x {question.gpu.name}, the fewest that will do (hardware.count is not set)"
        try:
            return tune(
                replace(question, gpu_count=count),
                replace(said, assumptions=(told, *said.assumptions)),
            )
        except InfeasiblePlanError as error:
            refused = error
    raise refused or ConfigError(f"tp {least} is above {TENSOR_PARALLEL[-1]}")


def _doubts(question: Question) -> Iterator[str]:
    """Yield each thing once that a check of the pairs would refuse or warn of."""
    target = Member(path="", model=question.target, precision=question.precision)
    drafts: list[Member | None] = [
        Member(path=each.name, model=each.spec, precision=each.precision)
        for each in question.candidates
        if each.spec is not None
    ]
    told = (doubts_of(target, draft, question.gpu) for draft in (drafts or [None]))
    yield from dict.fromkeys(chain.from_iterable(told))


def _said(request: TuneRequest, acceptances: Acceptances, gpus: Gpus, tools: TuneTools) -> Said:
    config = request.settings.config
    return Said(
        acceptance_source=acceptances.source,
        price_per_gpu_hour=config.price_per_gpu_hour,
        reading=_reading(request.settings, tools),
        measured=_measured(request, tools),
        assumptions=(*gpus.assumptions, *_assumptions(request.settings)),
        warnings=tuple(acceptances.warnings),
    )


def _assumptions(loaded: LoadedConfig) -> Iterator[str]:
    yield from plan_workload(loaded.config.workload).assumptions
    yield from open_settings(loaded)
    yield "a draft's KV type does not change its acceptance"
    if loaded.config.workload.slo.tpot_ms is not None:
        yield "TPOT p95 is taken as the high end of the predicted interval"


def _reading(loaded: LoadedConfig, tools: TuneTools) -> DraftLenSchedule | None:
    runtime = loaded.config.runtime
    if shape_of(loaded.config) == "engine":
        return _NO_SCHEDULE
    if runtime.trtllm_version is None and runtime.container is None:
        return None
    profiles = tools.releases()
    decided = decide_version(runtime.trtllm_version, runtime.container, None, profiles=profiles)
    return find_release(decided.version, profiles).draft_len_schedule


def _measured(request: TuneRequest, tools: TuneTools) -> tuple[MeasuredLoad, ...]:
    if request.measured is None:
        return ()
    return tuple(tools.files.read_measured(request.cwd / request.measured).loads)


def _constants(request: TuneRequest, tools: TuneTools) -> Constants:
    if request.calibration is None:
        return DEFAULT
    return tools.files.read_calibration(request.cwd / request.calibration).apply()
