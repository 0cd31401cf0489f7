"""scripts/gpu_check compares with what others say, and says when it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from environment import ROOT
from gpu_checks import sources
from gpu_checks.comparisons import compare_with_nvidia_smi, compare_with_torch
from gpu_checks.sources import AbsentError, ask_nvidia_smi, ask_torch
from nvml_stand_in.library import (
    SCRIPT_VARIABLE,
    SONAME,
    ScriptedMachine,
    a_gpu,
    a_machine,
    compiled_library,
    loaded_library,
    script,
)

from specdeploy.core.devices import GpuDevice, Machine
from specdeploy.units import GIB, MIB

UUID = "GPU-0a5c1e2d-1111-2222-3333-444455556666"
ROW = {
    "index": "0",
    "uuid": UUID,
    "name": "NVIDIA A100-SXM4-40GB",
    "memory.total": "40960",
    "memory.free": "39936",
    "memory.used": "512",
    "compute_cap": "8.0",
    "driver_version": "550.54.15",
    "pci.bus_id": "00000000:07:00.0",
    "power.limit": "400.00",
    "pcie.link.gen.current": "4",
    "compute_mode": "Default",
}


def write_nvidia_smi(folder: Path, *rows: dict[str, str], status: int = 0) -> None:
    lines = [", ".join(row[field] for field in sources.SMI_FIELDS) for row in rows]
    program = folder / "nvidia-smi"
    text = "\n".join(lines)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
    program.chmod(0o755)


def checked(folder: Path, libraries: Path) -> tuple[int, dict[str, object], str]:
    (folder / "script").write_text(script(a_machine(a_gpu())))
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    library_path = {"LD_LIBRARY_PATH": str(libraries), "PATH": path}
    finished = subprocess.run(
        [sys.executable, ROOT / "scripts" / "gpu_check"],
        env={**os.environ, **library_path, SCRIPT_VARIABLE: str(folder / "script")},
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.returncode, json.loads(finished.stdout), finished.stderr


def test_a_second_source_that_agrees_ends_with_0(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path, ROW)
    status, document, errors = checked(tmp_path, compiled_library().parent)
    assert (status, document["agrees"], errors) == (0, True, "")


def test_a_value_that_differs_is_named_and_ends_with_1(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path, {**ROW, "memory.free": "30000"})
    status, document, errors = checked(tmp_path, compiled_library().parent)
    assert (status, document["agrees"]) == (1, False)
    assert errors == (
        f"scripts/gpu_check: {UUID} free_bytes: ours 41875931136, nvidia-smi 31457280000\n"
    )


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("name", "NVIDIA H100", f"{UUID} name"),
        ("index", "1", f"{UUID} index"),
        ("memory.total", "[N/A]", f"{UUID} total_bytes"),
        ("memory.used", "900", f"{UUID} used_bytes"),
        ("compute_cap", "9.0", f"{UUID} compute capability"),
        ("driver_version", "1.2", f"{UUID} driver"),
        ("pci.bus_id", "00000000:08:00.0", f"{UUID} PCI bus"),
        ("compute_mode", "Prohibited", f"{UUID} compute mode"),
        ("power.limit", "300.00", f"{UUID} power limit"),
        ("uuid", "GPU-other", "uuid"),
    ],
)
def test_every_value_of_nvidia_smi_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: str, what: str
) -> None:
    write_nvidia_smi(tmp_path, {**ROW, field: value})
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with loaded_library():
        machine = ScriptedMachine(tmp_path, monkeypatch).probe(a_machine(a_gpu()))
    differing = [check.what for check in compare_with_nvidia_smi(machine) if not check.agrees]
    assert differing == [what]


def test_without_a_gpu_it_ends_with_5_and_says_why(tmp_path: Path) -> None:
    (tmp_path / SONAME).write_text("not a library")
    status, document, errors = checked(tmp_path, tmp_path)
    assert (status, document["checks"]) == (5, [])
    assert "is not on this machine" in errors


def test_with_nobody_to_compare_with_it_ends_with_5(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path, status=9)
    status, document, errors = checked(tmp_path, compiled_library().parent)
    assert (status, document["agrees"]) == (5, False)
    assert "nobody to compare with" in errors


def test_pytorch_without_cuda_is_no_second_source() -> None:
    if not metadata.version("torch").endswith("+cpu"):
        pytest.skip("this PyTorch has CUDA")
    with pytest.raises(AbsentError, match="without CUDA"):
        ask_torch()


def test_without_nvidia_smi_there_is_no_second_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AbsentError, match="not on PATH"):
        ask_nvidia_smi()


def torch_says(monkeypatch: pytest.MonkeyPatch, *rows: dict[str, int | str]) -> None:
    monkeypatch.setattr("gpu_checks.comparisons.ask_torch", lambda: list(rows))


def a_device(uuid: str) -> GpuDevice:
    return GpuDevice(index=0, uuid=uuid, name="A", sm=80, total_bytes=40 * GIB, free_bytes=39 * GIB)


def test_cudas_order_total_and_free_memory_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"sm": 80, "total": 40 * GIB - 500 * MIB, "free": 39 * GIB - 600 * MIB}
    torch_says(monkeypatch, {"uuid": "GPU-b", **row}, {"uuid": "GPU-a", **row, "free": 30 * GIB})
    machine = Machine(devices=[a_device("GPU-a"), a_device("GPU-b")])
    differing = [check.what for check in compare_with_torch(machine) if not check.agrees]
    assert differing == ["order", "GPU-b free_bytes"]
