"""Finds a tritonserver on this machine and makes its Python backend fit this interpreter."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from specdeploy.adapters.durable import explained, remove_tree, staging_sibling
from specdeploy.core.record import Record
from specdeploy.errors import MissingToolError

_WHEEL_LIBRARIES: Final = "nvidia_pytriton.libs"
_NUMPY_MAJOR: Final = 1
STUB: Final = "triton_python_backend_stub"


class TritonInstall(Record):
    """Where the parts of one tritonserver lie.

    Attributes:
        executable: The program.
        backends: Its backend folder, when it is the wheel's and needs a stub put in.
        stubs: The wheel's stubs, one folder per minor version of Python.
        libraries: The shared libraries that the wheel bundles.
    """

    executable: Path
    backends: Path | None = None
    stubs: Path | None = None
    libraries: Path | None = None


def find_tritonserver(environment: Mapping[str, str]) -> TritonInstall:
    """Return the tritonserver on PATH, else the one of the nvidia-pytriton wheel.

    Raises:
        MissingToolError: there is neither; the message says where we looked.
    """
    on_path = shutil.which("tritonserver", path=environment.get("PATH"))
    if on_path:
        return _describe(Path(on_path))
    spec = importlib.util.find_spec("pytriton")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        executable = Path(folder) / "tritonserver/bin/tritonserver"
        if executable.is_file():
            return _describe(executable)
    raise MissingToolError(
        "tritonserver is neither on PATH nor in an installed nvidia-pytriton wheel",
        hint="pip install 'specdeploy[reference]', or run inside a Triton container",
    )


def _describe(executable: Path) -> TritonInstall:
    root = executable.resolve().parent.parent
    stubs = root / "python_backend_stubs"
    if not stubs.is_dir():
        return TritonInstall(executable=executable)
    libraries = root.parent.parent / _WHEEL_LIBRARIES
    return TritonInstall(
        executable=executable,
        backends=root / "backends",
        stubs=stubs,
        libraries=libraries if libraries.is_dir() else None,
    )


def prepare_backends(install: TritonInstall, cache: Path) -> Path | None:
    """Return a backend folder whose Python stub is of the running Python's minor version.

    The folder is a private copy under ``cache``, complete or absent, made once per
    installation and Python version; the installation itself is never written to. None means
    that the installation's own folder serves (a Triton that is not the wheel's).

    Raises:
        MissingToolError: the wheel has no stub for this Python, or its stub cannot work here.
        ConfigError: ``cache`` cannot be written.
    """
    stub = require_stub(install)
    if install.backends is None or stub is None:
        return None
    prepared = cache / f"backends-{_fingerprint(install.backends, stub)}"
    if not prepared.is_dir():
        _copy_whole(install.backends, stub, prepared)
    return prepared


def require_stub(install: TritonInstall) -> Path | None:
    """Return the wheel's Python stub for the running Python; None when Triton is not the wheel's.

    Raises:
        MissingToolError: the wheel has no stub for this Python, or its stub cannot work here.
    """
    if install.stubs is None:
        return None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = install.stubs / version / STUB
    if not stub.is_file():
        known = ", ".join(sorted(folder.name for folder in install.stubs.iterdir()))
        raise MissingToolError(
            f"tritonserver has no Python backend stub for Python {version} (it has {known})",
            hint="use one of these Python versions",
        )
    _require_old_numpy()
    return stub


def _require_old_numpy() -> None:
    # The stubs are compiled against numpy 1: with numpy 2 they misread every text tensor.
    installed = importlib.metadata.version("numpy")
    if int(installed.partition(".")[0]) > _NUMPY_MAJOR:
        raise MissingToolError(
            f"nvidia-pytriton's Python backend needs numpy {_NUMPY_MAJOR}, and numpy {installed} "
            "is installed",
            hint="pip install 'numpy<2'",
        )


def _fingerprint(backends: Path, stub: Path) -> str:
    seen = hashlib.sha256()
    for path in (backends / "python/libtriton_python.so", stub):
        facts = path.stat()
        seen.update(f"{path}|{facts.st_size}|{facts.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:16]


def _copy_whole(backends: Path, stub: Path, prepared: Path) -> None:
    staging = staging_sibling(prepared)
    try:
        with explained(prepared):
            staging.mkdir(parents=True)
            _fill(staging, backends, stub)
            _move_first(staging, prepared)
    finally:
        remove_tree(staging)


def _move_first(staging: Path, prepared: Path) -> None:
    """Unlike an artifact, a folder that is there already may be in use and stays."""
    try:
        staging.rename(prepared)
    except OSError:
        if not prepared.is_dir():
            raise


def _fill(staging: Path, backends: Path, stub: Path) -> None:
    # Not copytree: it would carry over the modes of a read-only installation.
    for source in backends.rglob("*"):
        target = staging / source.relative_to(backends)
        if "__pycache__" in source.parts:
            continue
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    copied = staging / "python" / STUB
    shutil.copyfile(stub, copied)
    copied.chmod(0o755)


def server_environment(
    install: TritonInstall, base: Mapping[str, str], extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the server process: ``base``, what Triton needs, ``extra``.

    The stub finds its Python through PATH and its libpython through the library path: with
    another interpreter first on either, models load and answer empty tensors, or ``import
    ssl`` fails.
    """
    environment = {**base, **extra}
    environment["PATH"] = _joined(Path(sys.executable).parent, environment.get("PATH"))
    libraries = [_interpreter_libraries()]
    if install.libraries:
        libraries.append(install.libraries)
    for folder in reversed(libraries):
        current = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = _joined(folder, current)
    return environment


def _interpreter_libraries() -> Path:
    # LIBDIR is where the interpreter was built to live, which need not be where it lives.
    named = Path(str(sysconfig.get_config_var("LIBDIR")))
    beside = Path(sys.base_prefix) / "lib"
    library = str(sysconfig.get_config_var("INSTSONAME"))
    return named if (named / library).exists() else beside


def _joined(folder: Path, rest: str | None) -> str:
    return f"{folder}{os.pathsep}{rest}" if rest else str(folder)
