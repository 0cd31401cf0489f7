"""A build removes what nothing uses any more, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from build_support import FakeRuntime, RecordingReporter, Setup
from server_doubles import a_record
from typing_extensions import override

from specdeploy.adapters import superseded
from specdeploy.adapters.server_records import LocalServerRecords
from specdeploy.core.artifacts import BuildReport
from specdeploy.workflows.build import BuildRequest, Part, build


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def built(setup: Setup, length: int, *, only: Part | None = None, keep: bool = False) -> Path:
    """Build at a draft length, of which each has a repository; return that."""
    deployment = setup.deployment(draft_length=length)
    build(BuildRequest(deployment, FakeRuntime(), only, keep_superseded=keep), setup.bench())
    return (setup.workspace / "repository").resolve()


def built_from(setup: Setup, weights: str) -> BuildReport:
    """Build another target, which is another engine and so another repository."""
    (setup.source("target") / "model.safetensors").write_text(weights)
    return build(BuildRequest(setup.deployment(), FakeRuntime()), setup.bench())


def present(setup: Setup, folder: str = "repositories") -> set[Path]:
    return set((setup.workspace / folder).iterdir())


@contextmanager
def process_that_names(path: Path) -> Iterator[None]:
    """Run something with ``path`` on its command line, as a server has."""
    words = [sys.executable, "-c", "print('up', flush=True); input()", f"--repository={path}"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    try:
        yield
    finally:
        process.communicate(b"\n")


def test_a_superseded_repository_is_removed_and_told(setup: Setup) -> None:
    class Told(RecordingReporter):
        @override
        def file_written(self, verb: str, path: Path) -> None:
            self.lines.append(f"{verb} {path}")

    setup.reporter = Told()
    first, second, third = (built(setup, length) for length in (2, 3, 4))
    assert present(setup) == {second, third}
    assert f"remove {first}" in setup.reporter.lines
    assert not list(setup.workspace.glob(".*staging*"))


def test_a_superseded_engine_is_removed_and_a_shared_one_stays(setup: Setup) -> None:
    reports = [built_from(setup, weights) for weights in ("one", "two", "three")]
    targets = [Path(report.steps[0].output).parent for report in reports]
    draft = Path(reports[0].steps[1].output).parent
    assert present(setup, "engines") == {*targets[1:], draft}


def test_going_back_and_forth_between_two_settings_builds_nothing_twice(setup: Setup) -> None:
    for weights in ("one", "two"):
        built_from(setup, weights)
    setup.runner.commands.clear()
    for weights in ("one", "two", "one"):
        built_from(setup, weights)
    assert setup.runner.commands == []


def test_a_served_repository_and_its_engines_are_never_removed(setup: Setup) -> None:
    first = built_from(setup, "one")
    served = (setup.workspace / "repository").resolve()
    LocalServerRecords(setup.workspace).write(a_record(repository=str(served)))
    for weights in ("two", "three", "four"):
        built_from(setup, weights)
    assert served in present(setup)
    assert Path(first.steps[0].output).is_dir()
    assert len(present(setup)) == 3


def test_a_repository_that_a_process_names_is_never_removed(setup: Setup) -> None:
    served = built(setup, 2)
    with process_that_names(served):
        for length in (3, 4, 5):
            built(setup, length)
        assert served in present(setup)
    built(setup, 6)
    assert served not in present(setup)


def test_nothing_is_removed_where_processes_cannot_be_listed(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(superseded, "command_lines", lambda: None)
    repositories = {built(setup, length) for length in (2, 3, 4)}
    assert present(setup) == repositories


def test_nothing_is_removed_when_the_servers_record_cannot_be_read(setup: Setup) -> None:
    repositories = {built(setup, length) for length in (2, 3)}
    (setup.workspace / "run").mkdir()
    (setup.workspace / "run/server.json").write_text("{")
    repositories.add(built(setup, 4))
    assert present(setup) == repositories


def test_nothing_is_removed_on_request_or_by_half_a_build(setup: Setup) -> None:
    repositories = {built(setup, length, keep=True) for length in (2, 3, 4)}
    built(setup, 4, only="engines")
    repositories.add(built(setup, 5, only="repository"))
    assert present(setup) == repositories


def test_what_somebody_else_put_there_stays(setup: Setup) -> None:
    first = built(setup, 2)
    mine = first.with_name("my-copy")
    mine.mkdir()
    link = first.with_name("0" * 16)
    link.symlink_to(setup.folder)
    for length in (3, 4):
        built(setup, length)
    assert first not in present(setup)
    assert {mine, link} <= present(setup)
    assert setup.source("target").is_dir()
