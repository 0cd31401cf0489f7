from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from specdeploy.adapters.triton_install import (
    TritonInstall,
    find_tritonserver,
    prepare_backends,
    server_environment,
)
from specdeploy.errors import ConfigError, MissingToolError

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def wheel_like(root: Path, *, versions: tuple[str, ...] = (VERSION,)) -> TritonInstall:
    """Lay out files as the nvidia-pytriton wheel does."""
    server = root / "pytriton/tritonserver"
    for version in versions:
        stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
        stub.parent.mkdir(parents=True)
        stub.write_text(f"stub for {version}")
    backend = server / "backends/python"
    (backend / "__pycache__").mkdir(parents=True)
    (backend / "__pycache__/utils.pyc").write_text("compiled")
    (backend / "libtriton_python.so").write_text("backend")
    (backend / "triton_python_backend_utils.py").write_text("utils")
    (root / "nvidia_pytriton.libs").mkdir()
    return TritonInstall(
        executable=executable(server / "bin/tritonserver"),
        backends=server / "backends",
        stubs=server / "python_backend_stubs",
        libraries=root / "nvidia_pytriton.libs",
    )


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def tree(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_text() for path in files}


def test_a_server_on_path_is_preferred_to_the_wheel(tmp_path: Path) -> None:
    program = executable(tmp_path / "bin/tritonserver")
    assert find_tritonserver({"PATH": str(program.parent)}).executable == program


def test_a_server_that_is_not_the_wheels_keeps_its_own_backends(tmp_path: Path) -> None:
    program = executable(tmp_path / "bin/tritonserver")
    install = find_tritonserver({"PATH": str(program.parent)})
    assert prepare_backends(install, tmp_path / "cache") is None


def test_the_wheels_server_is_known_on_path_too(tmp_path: Path) -> None:
    install = wheel_like(tmp_path)
    found = find_tritonserver({"PATH": str(install.executable.parent)})
    assert found == install


def test_the_wheel_serves_when_there_is_none_on_path(tmp_path: Path) -> None:
    pytest.importorskip("pytriton")
    found = find_tritonserver({"PATH": str(tmp_path)})
    assert found.executable.name == "tritonserver"
    assert found.libraries is not None


def test_no_server_at_all_says_where_we_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingToolError, match="is neither on PATH nor in") as caught:
        find_tritonserver({"PATH": str(tmp_path)})
    assert "specdeploy[reference]" in str(caught.value.hint)


def test_the_stub_of_the_running_python_is_put_beside_the_backend(tmp_path: Path) -> None:
    install = wheel_like(tmp_path, versions=("3.8", VERSION))
    prepared = prepare_backends(install, tmp_path / "cache")
    assert prepared is not None
    assert tree(prepared) == {
        "python/libtriton_python.so": "backend",
        "python/triton_python_backend_utils.py": "utils",
        "python/triton_python_backend_stub": f"stub for {VERSION}",
    }
    assert os.access(prepared / "python/triton_python_backend_stub", os.X_OK)


def test_a_prepared_folder_is_used_again(tmp_path: Path) -> None:
    install = wheel_like(tmp_path)
    first = prepare_backends(install, tmp_path / "cache")
    assert first is not None
    (first / "mark").touch()
    assert prepare_backends(install, tmp_path / "cache") == first
    assert (first / "mark").exists()


def test_another_release_of_the_wheel_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    install = wheel_like(tmp_path)
    assert install.backends is not None
    first = prepare_backends(install, tmp_path / "cache")
    (install.backends / "python/libtriton_python.so").write_text("newer backend")
    assert prepare_backends(install, tmp_path / "cache") != first


def test_the_installation_is_not_written_to_and_may_be_read_only(tmp_path: Path) -> None:
    install = wheel_like(tmp_path / "site")
    before = tree(tmp_path / "site")
    for path in [*(tmp_path / "site").rglob("*"), tmp_path / "site"]:
        path.chmod(path.stat().st_mode & ~0o222)
    prepared = prepare_backends(install, tmp_path / "cache")
    assert prepared is not None
    shutil.rmtree(prepared)
    assert tree(tmp_path / "site") == before


def test_servers_that_prepare_at_once_share_one_whole_folder(tmp_path: Path) -> None:
    install = wheel_like(tmp_path)
    start = threading.Barrier(8)
    found: list[Path | None] = []

    def prepare() -> None:
        start.wait()
        found.append(prepare_backends(install, tmp_path / "cache"))

    threads = [threading.Thread(target=prepare) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [Path(str(found[0])).name]
    assert len(tree(Path(str(found[0])))) == 3


def test_a_folder_that_another_server_finished_first_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = wheel_like(tmp_path)
    elsewhere = prepare_backends(install, tmp_path / "elsewhere")
    assert elsewhere is not None
    prepared, copy = tmp_path / "cache" / elsewhere.name, shutil.copyfile

    def overtaken(source: Path, target: Path) -> Path:
        prepared.mkdir(parents=True, exist_ok=True)
        (prepared / "mark").touch()
        return copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", overtaken)
    assert prepare_backends(install, tmp_path / "cache") == prepared
    assert tree(prepared) == {"mark": ""}
    assert list((tmp_path / "cache").iterdir()) == [prepared]


def test_a_python_without_a_stub_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    install = wheel_like(tmp_path, versions=("3.6", "3.7"))
    with pytest.raises(MissingToolError, match=r"no Python backend stub .*3\.6, 3\.7"):
        prepare_backends(install, tmp_path / "cache")


def test_a_numpy_that_the_stub_cannot_work_with_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.1.3")
    with pytest.raises(MissingToolError, match=r"needs numpy 1, and numpy 2\.1\.3 is installed"):
        prepare_backends(wheel_like(tmp_path), tmp_path / "cache")


def test_a_cache_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigError, match="cannot write"):
        prepare_backends(wheel_like(tmp_path), tmp_path / "cache")


def test_this_environments_programs_come_first_on_path(tmp_path: Path) -> None:
    environment = server_environment(wheel_like(tmp_path), {"PATH": "/usr/bin"}, {})
    assert environment["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"


def test_the_interpreters_libraries_come_before_the_wheels(tmp_path: Path) -> None:
    install = wheel_like(tmp_path)
    environment = server_environment(install, {"LD_LIBRARY_PATH": "/opt/lib"}, {})
    first, second, third = environment["LD_LIBRARY_PATH"].split(":")
    assert (Path(first) / str(sysconfig.get_config_var("INSTSONAME"))).exists() or first.startswith(
        sys.base_prefix
    )
    assert (second, third) == (str(install.libraries), "/opt/lib")


def test_the_repositorys_variables_reach_the_server(tmp_path: Path) -> None:
    environment = server_environment(
        wheel_like(tmp_path), {"OMP_NUM_THREADS": "8"}, {"OMP_NUM_THREADS": "1"}
    )
    assert environment["OMP_NUM_THREADS"] == "1"
