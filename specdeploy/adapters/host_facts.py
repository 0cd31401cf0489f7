"""Reads the machine apart from its GPUs: programs, packages, containers, disks, limits."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, final

from specdeploy.adapters.triton_install import find_tritonserver, require_stub
from specdeploy.core.devices import read_meminfo
from specdeploy.core.host import ContainerFacts, DiskFacts, HostFacts, Limits, Lookup
from specdeploy.errors import MissingToolError

PACKAGES: Final = (
    *("specdeploy", "nvidia-ml-py", "tritonclient", "nvidia-pytriton", "numpy"),
    *("torch", "transformers", "safetensors", "tensorrt_llm", "tensorrt", "mpi4py"),
)
PROGRAMS: Final = ("trtllm-build", "trtllm-serve", "mpirun", "nvidia-smi")
CONTAINER_RUNTIMES: Final = ("docker", "podman")
TOOLKITS: Final = ("nvidia-ctk", "nvidia-container-cli")
# Files that docker and podman put into every container.
MARKS: Final = (Path(".dockerenv"), Path("run/.containerenv"))
PATIENCE_S: Final = 5.0


@final
class LocalHost:
    """This machine. ``root`` is the folder that /proc, /dev and the marks of containers lie in."""

    def __init__(self, environment: Mapping[str, str], *, root: Path = Path("/")) -> None:
        self._environment = environment
        self._root = root

    def facts(self, workspace: Path) -> HostFacts:
        """Return what is here; what cannot be read is null."""
        server = self._server()
        return HostFacts(
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            packages={name: _version(name) for name in PACKAGES},
            programs={name: self._which(name) for name in PROGRAMS},
            server=server,
            backends=_backends(server.found),
            container=self._container(),
            disk=_disk(workspace),
            shared_memory_bytes=_size(self._root / "dev/shm"),
            memory=read_meminfo(_read(self._root / "proc/meminfo")),
            limits=_limits(),
        )

    def _which(self, program: str) -> str | None:
        return shutil.which(program, path=self._environment.get("PATH"))

    def _server(self) -> Lookup:
        """Find the tritonserver that ``serve`` would start, and see that it can work here."""
        try:
            install = find_tritonserver(self._environment)
            require_stub(install)
        except MissingToolError as error:
            return Lookup(error=str(error), hint=error.hint)
        return Lookup(found=str(install.executable))

    def _container(self) -> ContainerFacts:
        inside = any((self._root / mark).exists() for mark in MARKS)
        program = next((name for name in CONTAINER_RUNTIMES if self._which(name)), None)
        if inside or program is None:
            return ContainerFacts(inside=inside)
        toolkit = next((name for name in TOOLKITS if self._which(name)), None)
        return ContainerFacts(
            inside=inside,
            runtime=f"{program} {self._number_in(program, '--version') or ''}".strip(),
            # `ps` needs the daemon, and this user's right to talk to it.
            answers=self._output(program, "ps", "--quiet") is not None,
            toolkit=toolkit and (self._number_in(toolkit, "--version") or "of unknown version"),
        )

    def _number_in(self, *argv: str) -> str | None:
        found = re.search(r"\d+(\.\d+)+", self._output(*argv) or "")
        return found[0] if found else None

    def _output(self, *argv: str) -> str | None:
        """Return what a program prints; None when it fails or takes longer than anybody waits."""
        try:
            finished = subprocess.run(
                argv,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = finished.stdout.decode(errors="replace")
        return None if finished.returncode else text


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _backends(server: str | None) -> list[str]:
    """Return the backends that are installed beside a server, as in Triton's own containers."""
    if server is None:
        return []
    folder = Path(server).resolve().parent.parent / "backends"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _disk(workspace: Path) -> DiskFacts:
    """Describe the file system of a folder that need not be there yet."""
    folder = next(path for path in (workspace, *workspace.parents) if path.is_dir())
    return DiskFacts(
        path=str(workspace), free_bytes=_free(folder), writable=os.access(folder, os.W_OK | os.X_OK)
    )


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _size(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def _limits() -> Limits:
    return Limits(
        open_files=_limit(resource.RLIMIT_NOFILE),
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK),
        stack_bytes=_limit(resource.RLIMIT_STACK),
    )


def _limit(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
