"""The workspace: one writer at a time, and nothing that an interrupted one left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typing_extensions import override

from specdeploy.adapters.workspace import Workspace
from specdeploy.core.build import EngineManifest
from specdeploy.errors import ConfigError
from specdeploy.events import Reporter

HOLD = """
import sys; from pathlib import Path
from specdeploy.adapters.workspace import Workspace
from specdeploy.events import Reporter
with Workspace(Path(sys.argv[1]), reporter=Reporter()).lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


class Recording(Reporter):
    def __init__(self) -> None:
        self.notes: list[str] = []

    @override
    def note(self, message: str) -> None:
        self.notes.append(message)


@contextmanager
def another_builder(root: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.stdout.close()
        process.stdin.close()
        process.kill()
        process.wait()


def a_workspace(root: Path, **options: float) -> Workspace:
    return Workspace(root, reporter=Reporter(), **options)


def a_manifest(role: str, digest: str) -> EngineManifest:
    return EngineManifest.model_validate(
        {
            "role": role,
            "plan_digest": digest,
            "settings": {},
            "argv": [],
            "inputs": [],
            "tools": {},
            "outputs": [],
        }
    )


def test_a_second_writer_fails_clearly_when_it_may_not_wait(tmp_path: Path) -> None:
    with (
        another_builder(tmp_path) as holder,
        pytest.raises(ConfigError, match=f"process {holder.pid}") as caught,
        a_workspace(tmp_path, lock_timeout_s=0.0).lock(),
    ):
        pass
    assert "--lock-timeout" in str(caught.value.hint)


def test_a_second_writer_says_that_it_waits_and_gets_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with another_builder(tmp_path) as holder:
        reporter = Recording()
        pauses: list[float] = []

        def release_in_the_end(seconds: float) -> None:
            pauses.append(seconds)
            if reporter.notes:
                holder.kill()
                holder.wait()

        monkeypatch.setattr("specdeploy.adapters.workspace.TELL_AFTER_S", 0.0)
        monkeypatch.setattr("time.sleep", release_in_the_end)
        workspace = Workspace(tmp_path, reporter=reporter, lock_timeout_s=60.0)
        with workspace.lock():
            assert reporter.notes == [f"waiting for another build (process {holder.pid})"]
        assert pauses


def test_a_killed_writer_holds_nothing(tmp_path: Path) -> None:
    with another_builder(tmp_path) as holder:
        holder.kill()
        holder.wait()
        with a_workspace(tmp_path).lock():
            assert (tmp_path / "build.lock").read_text() == f"{os.getpid()}\n"


def test_the_room_on_the_disk_is_told(tmp_path: Path) -> None:
    free = a_workspace(tmp_path).free_bytes()
    assert 0 < free <= shutil.disk_usage(tmp_path).total


def test_missing_parents_are_made(tmp_path: Path) -> None:
    with a_workspace(tmp_path / "a/b c/d'\n").lock():
        assert (tmp_path / "a/b c/d'\n").is_dir()


def test_an_unwritable_lock_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "build.lock").mkdir()
    with (
        pytest.raises(ConfigError, match=r"build\.lock: Is a directory"),
        a_workspace(tmp_path).lock(),
    ):
        pass


def test_a_workspace_below_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match="Not a directory"),
        a_workspace(tmp_path / "file/ws").lock(),
    ):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_workspace_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match="Permission denied"), a_workspace(tmp_path).lock():
            pass
    finally:
        tmp_path.chmod(0o700)


def test_what_interrupted_builds_left_is_removed_and_artifacts_are_kept(tmp_path: Path) -> None:
    left = [
        "engines/a/.target.staging-1/deep",
        "engines/b/.draft.staging-2",
        "repositories/.c.staging-3",
    ]
    kept = ["engines/a/draft", "repositories/c"]
    for name in left + kept:
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".repository.staging-4").symlink_to("repositories/c")
    reporter = Recording()
    with Workspace(tmp_path, reporter=reporter).lock():
        assert sorted(p.name for p in tmp_path.rglob("*")) == [
            "a",
            "build.lock",
            "c",
            "draft",
            "engines",
            "repositories",
        ]
    assert len(reporter.notes) == 4


def test_logs_are_numbered_and_never_reused(tmp_path: Path) -> None:
    workspace = a_workspace(tmp_path)
    first = workspace.next_log("build-target")
    assert first.name == "0001-build-target.log"
    first.write_text("")
    (tmp_path / "logs/0007-other.log").write_text("")
    assert workspace.next_log("build-draft").name == "0008-build-draft.log"


def test_the_newest_manifest_comes_first_and_garbage_is_passed_over(tmp_path: Path) -> None:
    workspace = a_workspace(tmp_path)
    for age, digest in enumerate(["c" * 64, "a" * 64, "b" * 64]):
        directory = workspace.engine_directory("target", digest)
        directory.mkdir(parents=True)
        workspace.seal(directory, "manifest.json", a_manifest("target", digest))
        os.utime(directory / "manifest.json", (1000 - age, 1000 - age))
    newest = workspace.engine_directory("target", "f" * 64)
    newest.mkdir(parents=True)
    (newest / "manifest.json").write_text("{")
    found = [m.plan_digest[0] for m in workspace.manifests("target")]
    assert found == ["c", "a", "b"]
    assert workspace.manifests("draft") == []


def test_target_and_draft_of_one_digest_lie_side_by_side(tmp_path: Path) -> None:
    workspace = a_workspace(tmp_path)
    digest = "0123456789abcdef01"
    target = workspace.engine_directory("target", digest)
    assert target == tmp_path / "engines/0123456789abcdef/target"
    assert workspace.engine_directory("draft", digest) == target.with_name("draft")
