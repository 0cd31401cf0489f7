"""Compiles the stand-in for NVML and scripts what it answers."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pynvml
import pytest

from specdeploy.adapters.device_probe import NvmlProbe
from specdeploy.core.devices import Machine
from specdeploy.units import GIB

SOURCE: Final = Path(__file__).with_name("nvml.c")
SONAME: Final = "libnvidia-ml.so.1"
SCRIPT_VARIABLE: Final = "NVML_STAND_IN"

NOT_SUPPORTED: Final = "error 3"
NO_PERMISSION: Final = "error 4"
LOST: Final = "error 15"

LINUX: Final = "Linux version 6.8.0-49-generic (buildd@lcy02) #49-Ubuntu SMP"
WSL: Final = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1)"

Section = Mapping[str, object]


@cache
def compiled_library(*, old_driver: bool = False) -> Path:
    """Return the library, compiled once per test run under the name that the driver's has.

    An old driver is one from before 510.
    """
    folder = Path(tempfile.mkdtemp(prefix="specdeploy-nvml-"))
    atexit.register(shutil.rmtree, folder)
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is needed to make the stand-in for NVML")
    library = folder / SONAME
    flags = ["-std=gnu11", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    variant = ["-DOLD_DRIVER"] if old_driver else []
    subprocess.run([compiler, *flags, *variant, "-o", str(library), str(SOURCE)], check=True)
    return library


@contextmanager
def loaded_library(*, old_driver: bool = False) -> Iterator[None]:
    """Let pynvml call the stand-in through ctypes, as if it had found the driver's library."""
    library = compiled_library(old_driver=old_driver)
    saved = dict(pynvml._nvmlGetFunctionPointer_cache)  # noqa: SLF001 - there is no other way in
    cache = pynvml._nvmlGetFunctionPointer_cache  # noqa: SLF001 - same
    before, pynvml.nvmlLib = pynvml.nvmlLib, ctypes.CDLL(str(library))
    cache.clear()
    try:
        yield
    finally:
        pynvml.nvmlLib = before
        cache.clear()
        cache.update(saved)


def script(sections: Mapping[str, Section]) -> str:
    """Return the text that makes the stand-in answer so."""
    lines = []
    for name, section in sections.items():
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in section.items())]
    return "\n".join(lines) + "\n"


def a_gpu(number: int = 0, /, **answers: object) -> dict[str, object]:
    """Return the section of an idle A100 with 40 GiB; None takes an answer away."""
    bus = 7 + number
    section: dict[str, object] = {
        "uuid": f"GPU-{number}a5c1e2d-1111-2222-3333-444455556666",
        "name": "NVIDIA A100-SXM4-40GB",
        "pci": f"00000000:{bus:02X}:00.0",
        "sm": 80,
        "memory": memory(40 * GIB, free=39 * GIB, reserved=GIB // 2),
        "compute_mode": 0,
        "compute": "",
        "graphics": "",
        "power_limit_mw": 400_000,
        "power_draw_mw": 51_250,
        "sm_clock": 210,
        "max_sm_clock": 1410,
        "memory_clock": 1215,
        "max_memory_clock": 1215,
        "pcie_gen": 4,
        "max_pcie_gen": 4,
        "pcie_width": 16,
        **answers,
    }
    return {key: value for key, value in section.items() if value is not None}


def memory(total: int, *, free: int, reserved: int = 0) -> str:
    """Return an answer about memory whose parts add up."""
    return f"{total} {reserved} {free} {total - reserved - free}"


def a_machine(*gpus: Section, **system: object) -> dict[str, Section]:
    """Return a script of these GPUs, in NVML's order."""
    answers = {"driver": "550.54.15", "cuda": 12_040, **system}
    return {
        "system": {key.replace("_", " "): value for key, value in answers.items()},
        **{f"gpu {number}": gpu for number, gpu in enumerate(gpus)},
    }


class ScriptedMachine:
    """A machine whose NVML and /proc answer from a folder."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        patch.setenv(SCRIPT_VARIABLE, str(folder / "script"))

    def prober(
        self,
        sections: Mapping[str, Section],
        environment: Mapping[str, str] | None = None,
        *,
        meminfo: str = "",
        version: str = LINUX,
    ) -> NvmlProbe:
        """Write the script and return a probe of the machine that it describes."""
        (self.folder / "script").write_text(script(sections))
        (self.folder / "meminfo").write_text(meminfo)
        (self.folder / "version").write_text(version)
        return NvmlProbe(environment or {}, proc=self.folder)

    def probe(
        self,
        sections: Mapping[str, Section],
        environment: Mapping[str, str] | None = None,
        *,
        meminfo: str = "",
        version: str = LINUX,
    ) -> Machine:
        """Return what is found on the machine that ``sections`` describe."""
        return self.prober(sections, environment, meminfo=meminfo, version=version).probe()
