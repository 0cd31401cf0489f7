"""Verifying: every file is read, and everything that differs is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from build_support import FakeRuntime, Setup

from specdeploy.adapters.artifact_files import LocalArtifacts
from specdeploy.adapters.hashing import FileHasher
from specdeploy.core.artifacts import VerifyReport
from specdeploy.errors import ArtifactError
from specdeploy.workflows.build import BuildRequest, build
from specdeploy.workflows.verify import require_whole, verify


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    setup = Setup(tmp_path)
    build(BuildRequest(setup.deployment(), FakeRuntime()), setup.bench())
    return setup


def verified(path: Path) -> VerifyReport:
    return verify(path, artifacts=LocalArtifacts(FileHasher()))


def target(setup: Setup) -> Path:
    (directory,) = setup.workspace.glob("engines/*/target")
    return directory


def differences(path: Path) -> list[tuple[str, str]]:
    report = verified(path)
    return [(d.kind, d.path) for check in report.artifacts for d in check.differences]


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("", ["engine", "engine", "repository"]),
        ("engines/*/target", ["engine"]),
        ("engines/*", ["engine"]),
        ("repository", ["repository"]),
    ],
)
def test_what_was_built_is_whole_at_every_level(setup: Setup, path: str, kinds: list[str]) -> None:
    place = next(setup.workspace.glob(path)) if path else setup.workspace
    report = verified(place)
    assert report.verdict == "whole"
    assert [check.kind for check in report.artifacts] == kinds
    assert all(check.files for check in report.artifacts)
    require_whole(report)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda d: (d / "config.json").unlink(), ("missing", "config.json")),
        (lambda d: (d / "notes").write_text(""), ("extra", "notes")),
        (lambda d: (d / "config.json").write_text("[]"), ("changed", "config.json")),
        (lambda d: (d / "config.json").write_text("longer"), ("changed", "config.json")),
        (lambda d: (d / "link").symlink_to("/nowhere"), ("unreadable", ".")),
        (lambda d: (d / "manifest.json").unlink(), ("record", "manifest.json")),
        (lambda d: (d / "manifest.json").write_text(""), ("record", "manifest.json")),
        (lambda d: (d / "manifest.json").write_bytes(b"\xff\x00"), ("record", "manifest.json")),
        (lambda d: (d / "manifest.json").write_text("[" * 99999), ("record", "manifest.json")),
        (lambda d: (d / "manifest.json").write_text("{}"), ("record", "manifest.json")),
    ],
)
def test_a_damaged_engine_is_different(
    setup: Setup, damage: Callable[[Path], None], expected: tuple[str, str]
) -> None:
    damage(target(setup))
    assert differences(target(setup)) == [expected]
    with pytest.raises(ArtifactError, match="1 of 3 artifacts differ"):
        require_whole(verified(setup.workspace))


def edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_an_edited_manifest_is_seen(setup: Setup) -> None:
    edit(target(setup) / "manifest.json", tools={"converter": "forged"})
    assert differences(target(setup)) == [("record", "manifest.json")]


def test_annotations_are_no_part_of_an_engine(setup: Setup) -> None:
    edit(target(setup) / "manifest.json", annotations={"host": "another"})
    assert differences(target(setup)) == []


def test_a_manifest_of_a_newer_release_is_refused_by_version(setup: Setup) -> None:
    edit(target(setup) / "manifest.json", schema_version=99)
    (check,) = verified(target(setup)).artifacts
    assert "schema_version 99 is not supported" in check.differences[0].message


def test_a_path_that_is_gone_is_told(setup: Setup) -> None:
    gone = target(setup)
    gone.rename(gone.with_name("elsewhere"))
    repository = setup.workspace / "repository"
    assert differences(repository) == [("path-gone", str(gone))]


def test_an_edited_repository_and_its_record_are_seen(setup: Setup) -> None:
    repository = setup.workspace / "repository"
    (repository / "leaf/1/model.py").write_text("MODEL = None\n")
    assert differences(repository) == [("changed", "leaf/1/model.py")]
    edit(repository / "repository.json", draft_length=9)
    assert ("record", "repository.json") in differences(repository)


def test_unfinished_directories_are_no_artifacts(setup: Setup) -> None:
    (target(setup).with_name(".target.staging-1")).mkdir()
    assert verified(setup.workspace).verdict == "whole"


@pytest.mark.parametrize("dangling", [False, True])
def test_a_workspace_without_a_current_repository_is_different(
    setup: Setup, *, dangling: bool
) -> None:
    link = setup.workspace / "repository"
    link.unlink()
    if dangling:
        link.symlink_to("repositories/gone")
    report = verified(setup.workspace)
    check = report.artifacts[-1]
    assert (report.verdict, check.path) == ("different", str(link))
    assert "the link to the current repository is missing" in check.differences[0].message
    with pytest.raises(ArtifactError, match="1 of 4 artifacts differ"):
        require_whole(report)


def test_a_workspace_with_engines_alone_needs_no_repository(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "engines alone")
    build(BuildRequest(setup.deployment(), FakeRuntime(), only="engines"), setup.bench())
    assert verified(setup.workspace).verdict == "whole"


def test_a_remembered_hash_is_not_believed(setup: Setup) -> None:
    (setup.workspace / "hashes.json").write_text("{}")
    (target(setup) / "config.json").write_text("[]")
    assert differences(setup.workspace) == [("changed", "config.json")]


@pytest.mark.parametrize("path", ["nowhere", "sources", "x" * 300])
def test_a_place_without_artifacts_is_an_error(setup: Setup, path: str) -> None:
    with pytest.raises(ArtifactError, match=r"does not exist|holds no engine"):
        verified(setup.folder / path)


def test_a_copied_engine_is_whole_elsewhere(setup: Setup, tmp_path: Path) -> None:
    moved = target(setup).rename(tmp_path / "copy")
    assert differences(moved) == []


def test_what_python_compiles_beside_a_served_model_is_no_difference(setup: Setup) -> None:
    cache = setup.workspace / "repository/leaf/1/__pycache__"
    cache.mkdir()
    (cache / "model.cpython-311.pyc").write_bytes(b"compiled")
    assert differences(setup.workspace) == []
