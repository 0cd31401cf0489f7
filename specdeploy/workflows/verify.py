"""Re-hash built artifacts and compare them with their own records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specdeploy.core.artifacts import (
    MANIFEST,
    REPOSITORIES,
    REPOSITORY_LINK,
    REPOSITORY_RECORD,
    ArtifactCheck,
    Difference,
    VerifyReport,
    compare_files,
)
from specdeploy.core.build import BuildStep, EngineManifest
from specdeploy.core.repository import FileEntry, ModelRepository
from specdeploy.errors import ArtifactError
from specdeploy.workflows.ports import Artifacts


def verify(path: Path, *, artifacts: Artifacts) -> VerifyReport:
    """Check an engine, the engines of a digest, a repository or a whole workspace.

    Raises:
        ArtifactError: there is no artifact at or below ``path``.
    """
    found = artifacts.find(path)
    checks = [_check(directory, artifacts) for directory in found]
    if any(directory.parent == path / REPOSITORIES for directory in found):
        checks += _check_link(path / REPOSITORY_LINK, artifacts)
    different = any(check.differences for check in checks)
    verdict = "different" if different else "whole"
    return VerifyReport(path=str(path), verdict=verdict, artifacts=checks)


def require_whole(report: VerifyReport) -> None:
    """Raise when something is different.

    Raises:
        ArtifactError: says how many artifacts differ.
    """
    broken = [check.path for check in report.artifacts if check.differences]
    if broken:
        raise ArtifactError(
            f"{len(broken)} of {len(report.artifacts)} artifacts differ from their records: "
            + ", ".join(broken),
            hint="`specdeploy build` makes those that the settings need again; remove the others",
        )


def _check(directory: Path, artifacts: Artifacts) -> ArtifactCheck:
    repository = artifacts.is_repository(directory)
    name = REPOSITORY_RECORD if repository else MANIFEST
    found: list[FileEntry] = []
    try:
        found = artifacts.entries(directory, without=name)
    except ArtifactError as error:
        differences = [Difference(kind="unreadable", path=".", message=str(error))]
    else:
        differences = _differences(directory, found, artifacts, repository=repository)
    return ArtifactCheck(
        path=str(directory),
        kind="repository" if repository else "engine",
        files=len(found),
        differences=differences,
    )


def _check_link(link: Path, artifacts: Artifacts) -> list[ArtifactCheck]:
    """Tell when a workspace has repositories, and nothing says which is the current one."""
    if artifacts.exists(str(link)):
        return []
    message = "the link to the current repository is missing or leads nowhere"
    missing = Difference(kind="missing", path=".", message=message)
    return [ArtifactCheck(path=str(link), kind="repository", files=0, differences=[missing])]


def _differences(
    directory: Path, found: Sequence[FileEntry], artifacts: Artifacts, *, repository: bool
) -> list[Difference]:
    try:
        if repository:
            return _of_repository(artifacts.read_repository(directory), found, artifacts)
        return _of_engine(artifacts.read_manifest(directory), found)
    except ArtifactError as error:
        name = REPOSITORY_RECORD if repository else MANIFEST
        return [Difference(kind="record", path=name, message=str(error))]


def _of_engine(manifest: EngineManifest, found: Sequence[FileEntry]) -> list[Difference]:
    step = BuildStep(
        role=manifest.role,
        argv=manifest.argv,
        inputs=manifest.inputs,
        settings=manifest.settings,
    )
    edited = step.plan_digest(manifest.tools) != manifest.plan_digest
    return [*_edited(MANIFEST, edited=edited), *compare_files(manifest.outputs, found)]


def _of_repository(
    record: ModelRepository, found: Sequence[FileEntry], artifacts: Artifacts
) -> list[Difference]:
    gone = [path for path in record.absolute_paths if not artifacts.exists(path)]
    return [
        *_edited(REPOSITORY_RECORD, edited=record.content_digest() != record.plan_digest),
        *compare_files(record.files, found),
        *(
            Difference(kind="path-gone", path=path, message="named by the files, not there")
            for path in gone
        ),
    ]


def _edited(name: str, *, edited: bool) -> list[Difference]:
    message = "its digest is not that of its content: the record was edited"
    return [Difference(kind="record", path=name, message=message)] if edited else []
