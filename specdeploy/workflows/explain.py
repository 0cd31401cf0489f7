"""Say what is stale and why; digests decide, never the existence of a file."""

from __future__ import annotations

from pathlib import Path

from specdeploy.core.artifacts import MANIFEST, Reason, StepReport, compare_files, explain_step
from specdeploy.core.build import BuildPlan, BuildStep, filled_argv
from specdeploy.errors import ArtifactError
from specdeploy.workflows.workbench import Workbench


def explain_engine(step: BuildStep, plan: BuildPlan, bench: Workbench) -> StepReport:
    """Return what a build has to do about one step, and why."""
    digest = step.plan_digest(plan.tools)
    output = bench.store.engine_directory(step.role, digest)
    reasons = _reasons(step, plan, output, bench)
    return StepReport(
        role=step.role,
        action="build" if reasons else "reuse",
        plan_digest=digest,
        output=str(output),
        command=filled_argv(step.argv, places(step, plan, bench, output=output)),
        inputs=step.inputs,
        reasons=reasons,
        stage=step.stage,
        log_name=step.log_name,
        changes=step.changes,
        notes=step.notes,
        expected=step.expected,
        disk_bytes=step.disk_bytes,
    )


def places(step: BuildStep, plan: BuildPlan, bench: Workbench, *, output: Path) -> dict[str, str]:
    """Return what the placeholders of a step's command stand for on this machine."""
    known = {**plan.places, "python": bench.python, "workspace": str(bench.store.root)}
    for other in plan.steps:
        if other.stage == "checkpoint" and other.role == step.role:
            digest = other.plan_digest(plan.tools)
            known["checkpoint"] = str(bench.store.engine_directory(other.role, digest))
    return {**known, "output": str(output)}


def _reasons(step: BuildStep, plan: BuildPlan, output: Path, bench: Workbench) -> list[Reason]:
    if bench.artifacts.exists(str(output)):
        return _damage(step.plan_digest(plan.tools), output, bench)
    made = bench.store.manifests(step.role)
    previous = next((manifest for manifest in made if manifest.stage == step.stage), None)
    changes = explain_step(step, plan.tools, previous)
    return changes or [Reason(what=f"the {step.title} is not where it belongs")]


def _damage(digest: str, output: Path, bench: Workbench) -> list[Reason]:
    """Compare an artifact with its manifest; the hasher makes that quick when nothing changed."""
    try:
        manifest = bench.artifacts.read_manifest(output)
        found = bench.artifacts.entries(output, without=MANIFEST)
    except ArtifactError as error:
        return [Reason(what=str(error))]
    if manifest.plan_digest != digest:
        return [Reason(what="plan digest", was=manifest.plan_digest, now=digest)]
    differences = compare_files(manifest.outputs, found)
    return [Reason(what=f"output {d.path}: {d.message}") for d in differences]
