"""Build a pair: plan it as a value, then perform what is stale."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from specdeploy.core.artifacts import (
    MANIFEST,
    BuildReport,
    RepositoryReport,
    StepReport,
)
from specdeploy.core.build import (
    Annotations,
    BuildPlan,
    BuildStep,
    EngineManifest,
    EnginePaths,
    InputFile,
    filled_argv,
)
from specdeploy.core.deployment import Deployment, ModelUse
from specdeploy.core.repository import FileEntry
from specdeploy.errors import ArtifactError
from specdeploy.runtimes.base import Runtime, StepInputs
from specdeploy.workflows.explain import explain_engine, places
from specdeploy.workflows.package import (
    RenderedRepository,
    explain_rendered,
    render_repository,
    write_repository,
)
from specdeploy.workflows.space import require_space
from specdeploy.workflows.steps import require_as_planned, run_step
from specdeploy.workflows.superseded import remove_superseded
from specdeploy.workflows.workbench import Workbench

Part = Literal["engines", "repository"]


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to build.

    Attributes:
        deployment: The effective settings.
        runtime: What builds them.
        only: Leaves the other part alone, and what earlier builds made.
        keep_superseded: Do not remove what this build takes the place of.
    """

    deployment: Deployment
    runtime: Runtime
    only: Part | None = None
    keep_superseded: bool = False


def plan_build(request: BuildRequest, bench: Workbench) -> BuildPlan:
    """Return the steps of a build; sources are hashed, nothing is written.

    Raises:
        MissingToolError: a tool that the steps run is not installed.
        CheckpointError: a source cannot be read.
    """
    deployment = request.deployment
    versions = bench.tools.versions(request.runtime.name)
    inputs = StepInputs(
        target=_hashed(deployment.target, bench),
        draft=_hashed(deployment.draft, bench) if deployment.draft else [],
        tools=versions,
    )
    return request.runtime.plan_build(deployment, inputs=inputs)


def preview(request: BuildRequest, bench: Workbench) -> BuildReport:
    """Return what ``build`` would do, and why. Nothing is written.

    Raises:
        SpecdeployError: as planning and rendering do.
    """
    plan = plan_build(request, bench)
    steps = [explain_engine(step, plan, bench) for step in plan.steps]
    repository = None
    if request.only != "engines":
        rendered = _render(request, steps, bench, must_exist=False)
        repository = explain_rendered(rendered, bench)
    shown = [] if request.only == "repository" else steps
    return _report(plan, shown, bench).evolve(repository=repository, performed=False)


def build(request: BuildRequest, bench: Workbench) -> BuildReport:
    """Build what is stale, reuse the rest.

    Raises:
        SpecdeployError: anything that went wrong; what was finished before stays.
    """
    plan = plan_build(request, bench)
    with bench.store.lock():
        previous = bench.store.current_repository()
        steps = [explain_engine(step, plan, bench) for step in plan.steps]
        try:
            if request.only == "repository":
                _require_built(steps)
            else:
                require_space(steps, bench.store)
                _perform_steps(plan, steps, bench)
        finally:
            bench.hasher.save()
        repository = None if request.only == "engines" else _package(request, steps, bench)
        if request.only is None and not request.keep_superseded:
            remove_superseded(steps, previous, bench)
    shown = [] if request.only == "repository" else steps
    return _report(plan, shown, bench).evolve(repository=repository)


def _perform_steps(plan: BuildPlan, reports: list[StepReport], bench: Workbench) -> None:
    for step, report in zip(plan.steps, reports, strict=True):
        output = Path(report.output)
        if report.action == "reuse":
            bench.reporter.artifact_reused(step.title, path=output)
            continue
        for reason in report.reasons:
            bench.reporter.note(f"{step.title} is stale: {reason.sentence}")
        _perform(step, plan, report, bench)
        bench.reporter.artifact_built(step.title, path=output)


def _perform(step: BuildStep, plan: BuildPlan, report: StepReport, bench: Workbench) -> None:
    started = bench.clock()
    bench.reporter.stage_started(f"building the {step.title}")
    with bench.store.staging(Path(report.output)) as staging:
        argv = filled_argv(step.argv, places(step, plan, bench, output=staging))
        run_step(argv, step, bench)
        outputs = bench.artifacts.entries(staging, without=MANIFEST)
        _require_output(outputs, step)
        require_as_planned(staging, step, bench)
        _require_same_inputs(step, bench)
        manifest = EngineManifest(
            role=step.role,
            stage=step.stage,
            plan_digest=report.plan_digest,
            settings=step.settings,
            expected=step.expected,
            argv=step.argv,
            inputs=step.inputs,
            tools=plan.tools,
            outputs=outputs,
            annotations=_annotations(started, bench),
        )
        bench.store.seal(staging, MANIFEST, manifest)


def _require_output(outputs: list[FileEntry], step: BuildStep) -> None:
    if not outputs:
        raise ArtifactError(f"the {step.role}'s build command succeeded but wrote no file")
    written = {entry.path for entry in outputs}
    if missing := [name for name in step.files if name not in written]:
        raise ArtifactError(
            f"the command for the {step.title} succeeded but wrote no {', '.join(missing)}"
        )


def _require_same_inputs(step: BuildStep, bench: Workbench) -> None:
    folders = sorted({Path(i.path).parent for i in step.inputs})
    now = [i for folder in folders for i in bench.hasher.checkpoint_inputs(folder)]
    if _by_path(now) != _by_path(step.inputs):
        raise ArtifactError(
            f"the {step.role}'s checkpoint changed while it was being built",
            hint="build again when nothing writes to it",
        )


def _by_path(inputs: list[InputFile]) -> list[tuple[str, str]]:
    return sorted((i.path, i.sha256) for i in inputs)


def _require_built(reports: list[StepReport]) -> None:
    for report in reports:
        for reason in report.reasons:
            raise ArtifactError(
                f"the {report.title} is not built: {reason.sentence}",
                hint="`specdeploy build` without --only builds it",
            )


def _package(request: BuildRequest, steps: list[StepReport], bench: Workbench) -> RepositoryReport:
    rendered = _render(request, steps, bench, must_exist=True)
    report = explain_rendered(rendered, bench)
    if report.action == "reuse":
        bench.reporter.artifact_reused("repository", path=Path(report.path))
    else:
        directory = write_repository(rendered, bench)
        bench.reporter.artifact_built("repository", path=directory)
    return report


def _render(
    request: BuildRequest, steps: list[StepReport], bench: Workbench, *, must_exist: bool
) -> RenderedRepository:
    return render_repository(
        request.deployment,
        request.runtime,
        engines=_engine_paths(request.deployment, steps),
        renderer=bench.renderer,
        must_exist=must_exist,
    )


def _engine_paths(deployment: Deployment, steps: list[StepReport]) -> EnginePaths:
    """Return the built artifacts, or the checkpoint itself where no step builds one."""
    built = {step.role: step.output for step in steps if step.stage == "engine"}
    draft = deployment.draft.path if deployment.draft else None
    return EnginePaths(
        target=built.get("target", deployment.target.path), draft=built.get("draft", draft)
    )


def _hashed(model: ModelUse, bench: Workbench) -> list[InputFile]:
    return bench.hasher.checkpoint_inputs(Path(model.path))


def _annotations(started: float, bench: Workbench) -> Annotations:
    now = bench.clock()
    built_at = datetime.fromtimestamp(now, tz=timezone.utc).isoformat(timespec="seconds")
    return Annotations(built_at=built_at, host=bench.host, seconds=round(now - started, 3))


def _report(plan: BuildPlan, steps: list[StepReport], bench: Workbench) -> BuildReport:
    return BuildReport(
        workspace=str(bench.store.root),
        runtime=plan.runtime,
        performed=True,
        tools=plan.tools,
        steps=steps,
    )
