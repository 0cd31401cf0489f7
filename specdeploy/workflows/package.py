"""Render the model repository of a pair: in memory, then as one directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from specdeploy.core.artifacts import (
    REPOSITORY_RECORD,
    Reason,
    RepositoryReport,
    compare_files,
    explain_repository,
)
from specdeploy.core.build import EnginePaths
from specdeploy.core.deployment import Deployment
from specdeploy.core.repository import ModelRepository, RepositoryPlan, file_entry
from specdeploy.errors import ArtifactError
from specdeploy.runtimes.base import Runtime
from specdeploy.workflows.ports import Renderer
from specdeploy.workflows.workbench import Workbench


@dataclass(frozen=True, slots=True)
class RenderedRepository:
    """A repository that is not on the disk yet."""

    record: ModelRepository
    contents: Mapping[str, bytes]
    plan: RepositoryPlan


def render_repository(
    deployment: Deployment,
    runtime: Runtime,
    *,
    engines: EnginePaths,
    renderer: Renderer,
    must_exist: bool = True,
) -> RenderedRepository:
    """Return every file of the repository, checked.

    Args:
        deployment: What is served.
        runtime: Who describes the repository.
        engines: What its files name.
        renderer: Who writes the text.
        must_exist: Refuse absolute paths that do not exist.

    Raises:
        ArtifactError: a file cannot be rendered, or would lie outside the repository.
    """
    plan = runtime.plan_repository(deployment, engines=engines)
    contents: dict[str, bytes] = {}
    for path, content in renderer.render(plan, must_exist=must_exist):
        _require_inside(path, contents)
        contents[path] = content
    return RenderedRepository(
        record=_record(plan, contents, runtime=runtime.name, tuning=deployment.tuning_digest),
        contents=contents,
        plan=plan,
    )


def explain_rendered(rendered: RenderedRepository, bench: Workbench) -> RepositoryReport:
    """Return what a build has to do about the repository, and why."""
    record, plan = rendered.record, rendered.plan
    reasons = _reasons(record, bench)
    path = str(bench.store.repository)
    return RepositoryReport(
        action="render" if reasons else "reuse",
        path=path,
        entry_model=record.entry_model,
        models=record.models,
        files=[entry.path for entry in record.files],
        reasons=reasons,
        notes=plan.notes,
        lossy=plan.lossy,
        serve_command=[word.replace("{repository}", path) for word in plan.serve_command],
        settings={
            file: content.decode()
            for file, content in rendered.contents.items()
            if file.endswith(".yaml")
        },
    )


def write_repository(rendered: RenderedRepository, bench: Workbench) -> Path:
    """Write the repository under its digest and make it the current one; return its path."""
    record = rendered.record
    directory = bench.store.repository_directory(record.plan_digest)
    if _damage(record, directory, bench):
        with bench.store.staging(directory) as staging:
            for path, content in rendered.contents.items():
                bench.store.write_file(staging / path, content)
                bench.reporter.file_written("create", directory / path)
            for path in rendered.plan.directories:
                bench.store.make_directory(staging / path)
            bench.store.seal(staging, REPOSITORY_RECORD, record)
    bench.store.publish_repository(directory)
    return directory


def _record(
    plan: RepositoryPlan, contents: Mapping[str, bytes], *, runtime: str, tuning: str | None
) -> ModelRepository:
    draft = ModelRepository(
        runtime=runtime,
        shape=plan.shape,
        method=plan.method,
        models=plan.models,
        entry_model=plan.entry_model,
        streaming=plan.streaming,
        draft_length=plan.draft_length,
        plan_digest="",
        tuning_digest=tuning,
        absolute_paths=plan.absolute_paths,
        environment=plan.environment,
        files=[file_entry(path, contents[path]) for path in sorted(contents)],
    )
    return draft.evolve(plan_digest=draft.content_digest())


def _require_inside(path: str, seen: Mapping[str, bytes]) -> None:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or path == REPOSITORY_RECORD:
        raise ArtifactError(f"the plan writes {path!r}, which is not a repository's own file")
    if path in seen:
        raise ArtifactError(f"the plan writes {path!r} twice")


def _reasons(record: ModelRepository, bench: Workbench) -> list[Reason]:
    current = bench.store.repository
    if not bench.artifacts.exists(str(current)):
        return [Reason(what="no repository was rendered in this workspace")]
    try:
        previous = bench.artifacts.read_repository(current)
    except ArtifactError as error:
        return [Reason(what=str(error))]
    return explain_repository(record, previous) or _damage(record, current, bench)


def _damage(record: ModelRepository, directory: Path, bench: Workbench) -> list[Reason]:
    try:
        if bench.artifacts.read_repository(directory) != record:
            return [Reason(what=f"{directory} holds another repository")]
        found = bench.artifacts.entries(directory, without=REPOSITORY_RECORD)
    except ArtifactError as error:
        return [Reason(what=str(error))]
    differences = compare_files(record.files, found)
    return [Reason(what=f"file {d.path}: {d.message}") for d in differences]
