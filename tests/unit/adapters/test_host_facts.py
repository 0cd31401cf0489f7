"""The machine's own facts: what is on PATH, what marks a container, how much room there is."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from specdeploy.adapters import host_facts
from specdeploy.adapters.host_facts import LocalHost
from specdeploy.core.host import ContainerFacts, HostFacts, Limits


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder to be all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def write_program(folder: Path, name: str, body: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def facts(programs: Path, root: Path | None = None) -> HostFacts:
    host = LocalHost({"PATH": str(programs)}, root=root or programs / "root")
    return host.facts(programs / "workspace")


def test_programs_are_found_on_the_path_that_is_given(programs: Path) -> None:
    write_program(programs, "mpirun", "exit 0")
    found = facts(programs).programs
    assert found["mpirun"] == str(programs / "mpirun")
    assert found["trtllm-build"] is None


def test_packages_are_told_with_their_versions(programs: Path) -> None:
    found = facts(programs).packages
    assert found["nvidia-ml-py"] is not None
    assert found["tensorrt"] is None
    assert facts(programs).python == ".".join(map(str, sys.version_info[:3]))


def test_a_server_on_path_is_told_with_the_backends_beside_it(programs: Path) -> None:
    write_program(programs, "tritonserver", "exit 0")
    for name in ("python", "tensorrtllm"):
        (programs.parent / "backends" / name).mkdir(parents=True)
    found = facts(programs)
    assert found.server.found == str(programs / "tritonserver")
    assert found.backends == ["python", "tensorrtllm"]


def test_a_server_without_a_backend_folder_has_none(programs: Path) -> None:
    write_program(programs, "tritonserver", "exit 0")
    assert facts(programs).backends == []


def test_a_server_that_is_not_there_is_an_error_with_a_hint(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = facts(programs)
    assert "neither on PATH nor in" in (found.server.error or "")
    assert "pip install" in (found.server.hint or "")
    assert found.backends == []


def test_a_wheels_server_that_cannot_work_with_this_numpy_is_an_error(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytriton")
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.1.0")
    assert "needs numpy 1" in (facts(programs).server.error or "")


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_a_container_is_known_by_its_mark(programs: Path, tmp_path: Path, mark: str) -> None:
    root = tmp_path / "root"
    (root / mark).parent.mkdir(parents=True, exist_ok=True)
    (root / mark).touch()
    write_program(programs, "docker", "exit 0")
    assert facts(programs, root).container == ContainerFacts(inside=True)
    assert not facts(programs, tmp_path / "other").container.inside


def test_a_machine_without_docker_and_podman_is_told(programs: Path) -> None:
    assert facts(programs).container == ContainerFacts(inside=False)


DOCKER = (
    'case "$1" in --version) echo "Docker version 28.2.2, build e6534b4";; ps) exit {ps};; esac'
)


def test_a_docker_that_answers_is_told_with_the_toolkit(programs: Path) -> None:
    write_program(programs, "docker", DOCKER.format(ps=0))
    write_program(programs, "nvidia-ctk", "echo NVIDIA Container Toolkit CLI version 1.17.8")
    assert facts(programs).container == ContainerFacts(
        inside=False, runtime="docker 28.2.2", answers=True, toolkit="1.17.8"
    )


def test_a_docker_without_its_daemon_does_not_answer(programs: Path) -> None:
    write_program(programs, "docker", DOCKER.format(ps=1))
    assert facts(programs).container == ContainerFacts(inside=False, runtime="docker 28.2.2")


def test_programs_that_tell_no_version_are_told_without(programs: Path) -> None:
    write_program(programs, "podman", "exit 1")
    write_program(programs, "nvidia-container-cli", "echo hello")
    assert facts(programs).container == ContainerFacts(
        inside=False, runtime="podman", toolkit="of unknown version"
    )


def test_a_daemon_that_hangs_does_not_hang_the_doctor(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_facts, "PATIENCE_S", 0.05)
    write_program(programs, "docker", "exec /bin/sleep 60")
    assert facts(programs).container == ContainerFacts(inside=False, runtime="docker")


def test_a_file_that_is_no_program_does_not_answer(programs: Path) -> None:
    (programs / "docker").write_bytes(b"\x7fELF broken")
    (programs / "docker").chmod(0o755)
    assert facts(programs).container == ContainerFacts(inside=False, runtime="docker")


def test_the_disk_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    disk = LocalHost({}).facts(tmp_path / "not" / "yet").disk
    assert (disk.path, disk.writable) == (str(tmp_path / "not" / "yet"), True)
    assert (disk.free_bytes or 0) > 0


def test_a_folder_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert not LocalHost({}).facts(Path("/nowhere")).disk.writable


def test_a_disk_that_cannot_be_asked_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("shutil.disk_usage", refuse)
    assert LocalHost({}).facts(tmp_path).disk.free_bytes is None


def test_memory_and_shared_memory_are_read_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8 kB\nMemAvailable: 2 kB\n")
    (tmp_path / "dev/shm").mkdir(parents=True)
    found = LocalHost({}, root=tmp_path).facts(tmp_path)
    assert (found.memory.total_bytes, found.memory.available_bytes) == (8192, 2048)
    assert (found.shared_memory_bytes or 0) > 0


def test_what_the_root_lacks_is_not_known(tmp_path: Path) -> None:
    found = LocalHost({}, root=tmp_path).facts(tmp_path)
    assert (found.memory.total_bytes, found.shared_memory_bytes) == (None, None)


def test_limits_are_this_processs_and_infinity_is_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft = {resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_STACK: 8192}
    monkeypatch.setattr(
        "resource.getrlimit", lambda kind: (soft.get(kind, resource.RLIM_INFINITY), 1)
    )
    assert LocalHost({}).facts(tmp_path).limits == Limits(
        open_files=1024, locked_bytes=None, stack_bytes=8192
    )
