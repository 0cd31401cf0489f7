"""Rendering a repository: its own files only, each once."""

from __future__ import annotations

from pathlib import Path

import pytest
from build_support import FakeRuntime, Setup
from typing_extensions import override

from specdeploy.core.build import EnginePaths
from specdeploy.core.deployment import Deployment
from specdeploy.core.repository import FileToCopy, RepositoryPlan
from specdeploy.errors import ArtifactError
from specdeploy.workflows.build import BuildRequest, build, preview
from specdeploy.workflows.package import RenderedRepository, render_repository


class CopyingRuntime(FakeRuntime):
    """Copies the model's code to wherever a test says."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths

    @override
    def plan_repository(self, deployment: Deployment, *, engines: EnginePaths) -> RepositoryPlan:
        plan = super().plan_repository(deployment, engines=engines)
        copies = [FileToCopy(path=path, source="model.py") for path in self._paths]
        return plan.evolve(copies=copies)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def rendered(setup: Setup, *paths: str) -> RenderedRepository:
    return render_repository(
        setup.deployment(),
        CopyingRuntime(*paths),
        engines=EnginePaths(target=str(setup.source("target"))),
        renderer=setup.bench().renderer,
    )


@pytest.mark.parametrize("path", ["/etc/model.py", "../model.py", "a/../../b", "repository.json"])
def test_a_file_outside_the_repository_or_in_place_of_its_record_is_refused(
    setup: Setup, path: str
) -> None:
    with pytest.raises(ArtifactError, match="not a repository's own file"):
        rendered(setup, path)


def test_a_file_that_is_written_twice_is_refused(setup: Setup) -> None:
    with pytest.raises(ArtifactError, match="twice"):
        rendered(setup, "leaf/1/model.py", "leaf/1/model.py")


def test_equal_content_has_an_equal_digest_and_other_content_another(setup: Setup) -> None:
    first = rendered(setup, "leaf/1/model.py").record
    assert rendered(setup, "leaf/1/model.py").record == first
    (setup.folder / "templates/model.py").write_text("MODEL = 2\n")
    assert rendered(setup, "leaf/1/model.py").record.plan_digest != first.plan_digest


def test_engines_that_are_not_there_are_refused_unless_they_are_still_to_be_built(
    setup: Setup,
) -> None:
    gone = EnginePaths(target=str(setup.folder / "gone"))
    renderer = setup.bench().renderer
    with pytest.raises(ArtifactError, match="which does not exist"):
        render_repository(setup.deployment(), FakeRuntime(), engines=gone, renderer=renderer)
    assert render_repository(
        setup.deployment(), FakeRuntime(), engines=gone, renderer=renderer, must_exist=False
    ).contents


def test_a_repository_whose_record_is_gone_or_of_another_is_rendered_again(setup: Setup) -> None:
    request = BuildRequest(setup.deployment(), FakeRuntime())
    build(request, setup.bench())
    record = setup.workspace / "repository/repository.json"
    record.unlink()
    report = preview(request, setup.bench()).repository
    assert report is not None
    assert "is missing" in report.reasons[0].what
    build(request, setup.bench())
    whole = record.read_text()
    record.write_text(whole.replace('"draft_length": 4', '"draft_length": 5'))
    build(request, setup.bench())
    assert record.read_text() == whole
