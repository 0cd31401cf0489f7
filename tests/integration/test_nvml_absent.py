"""GPUs that go away, drivers that do not start, and drivers and bindings of other ages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
from nvml_stand_in.library import (
    LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    SCRIPT_VARIABLE,
    SONAME,
    ScriptedMachine,
    a_gpu,
    a_machine,
    compiled_library,
    loaded_library,
    script,
)

from specdeploy.adapters.device_probe import NvmlProbe
from specdeploy.core.devices import GpuDevice, Machine
from specdeploy.units import GIB


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedMachine]:
    with loaded_library():
        yield ScriptedMachine(tmp_path, monkeypatch)


def only(machine: Machine) -> GpuDevice:
    [device] = machine.devices
    return device


@pytest.mark.parametrize("after", range(3, 20, 4))
def test_a_gpu_that_goes_away_between_two_questions_is_told(
    machine: ScriptedMachine, after: int
) -> None:
    found = machine.probe(a_machine(a_gpu(0, lost_after=after), a_gpu(1)))
    assert [device.uuid[:5] for device in found.devices] == ["GPU-1"]
    assert found.devices[0].index == 1
    assert any("GPU is lost" in note for note in found.notes)


@pytest.mark.parametrize("status", [LOST, NO_PERMISSION, "error 16"])
def test_a_gpu_that_gives_no_handle_leaves_the_others_their_numbers(
    machine: ScriptedMachine, status: str
) -> None:
    found = machine.probe(a_machine(a_gpu(0, handle=status), a_gpu(1)))
    assert [device.index for device in found.devices] == [1]
    assert any(note.startswith("GPU 0 cannot be") for note in found.notes)


def test_when_the_only_gpu_is_lost_the_error_says_so(machine: ScriptedMachine) -> None:
    found = machine.probe(a_machine(a_gpu(lost_after=6)), {"CUDA_VISIBLE_DEVICES": "0"})
    assert found.devices == []
    assert "GPU is lost" in (found.error or "")
    assert "restart" in (found.hint or "")


# BL-112: no library, no driver, no GPU.


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (9, "not loaded"),
        (18, "different versions"),
        (4, "may not talk to"),
        (17, "NVML does not start: The operating system has blocked the request."),
        (999, "NVML does not start: Unknown Error"),
    ],
)
def test_a_driver_that_does_not_start_says_why(
    machine: ScriptedMachine, status: int, told: str
) -> None:
    found = machine.probe(a_machine(a_gpu(), init=status))
    assert found.devices == []
    assert told in (found.error or "")
    assert found.hint


def test_a_driver_without_gpus_says_so(machine: ScriptedMachine) -> None:
    found = machine.probe(a_machine())
    assert (found.driver_version, found.error) == ("550.54.15", "NVML starts and finds no GPU")


def test_a_count_that_fails_leaves_no_devices(machine: ScriptedMachine) -> None:
    found = machine.probe(a_machine(a_gpu(), count="error 999"))
    assert "nvmlDeviceGetCount is refused" in (found.error or "")


PROBE = """
import json, os, sys
from specdeploy import wiring
assert "pynvml" not in sys.modules
print(wiring.device_probe().probe().model_dump_json())
"""


def probe_in_a_process(folder: Path, **variables: str) -> Machine:
    """Probe where the dynamic linker finds libnvidia-ml.so.1 by itself."""
    finished = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return Machine.model_validate_json(finished.stdout)


def test_the_library_is_found_as_the_drivers_is(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script(a_machine(a_gpu())))
    found = probe_in_a_process(
        compiled_library().parent, **{SCRIPT_VARIABLE: str(tmp_path / "script")}
    )
    assert only(found).name == "NVIDIA A100-SXM4-40GB"


def test_a_machine_without_the_library_says_so(tmp_path: Path) -> None:
    # A file that is no library hides one that this machine may have.
    (tmp_path / SONAME).write_text("not a library")
    found = probe_in_a_process(tmp_path)
    assert found.devices == []
    assert "libnvidia-ml.so.1, is not on this machine" in (found.error or "")
    assert "--gpus all" in (found.hint or "")


def test_without_nvidia_ml_py_the_package_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = NvmlProbe({}).probe()
    assert (found.devices, found.hint) == ([], "pip install nvidia-ml-py")


# Drivers and bindings of other ages.


def test_an_old_driver_counts_what_it_reserves_as_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded_library(old_driver=True):
        found = ScriptedMachine(tmp_path, monkeypatch).probe(a_machine(a_gpu(compute="5:1")))
    device = only(found)
    assert (device.used_bytes, device.reserved_bytes) == (GIB, None)
    assert [process.pid for process in device.processes] == [5]


def test_a_driver_that_refuses_the_newer_structure_is_asked_for_the_older(
    machine: ScriptedMachine,
) -> None:
    device = only(machine.probe(a_machine(a_gpu(accepts_memory_v2=0))))
    assert (device.free_bytes, device.reserved_bytes) == (39 * GIB, None)


def test_an_older_binding_without_a_function_asks_for_less(
    machine: ScriptedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(pynvml, "nvmlDeviceGetAddressingMode", raising=False)
    monkeypatch.delattr(pynvml, "nvmlMemory_v2")
    device = only(machine.probe(a_machine(a_gpu())))
    assert only(machine.probe(a_machine(a_gpu(memory=NOT_SUPPORTED)))).total_bytes is None
    assert (device.free_bytes, device.reserved_bytes) == (39 * GIB, None)


def test_a_name_that_is_no_text_does_not_hide_the_gpu(
    machine: ScriptedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undecodable(_: object) -> str:
        return b"\xff".decode()

    monkeypatch.setattr("pynvml.nvmlDeviceGetName", undecodable)
    found = machine.probe(a_machine(a_gpu()))
    assert only(found).name == "unknown GPU"
    assert found.notes == ["nvmlDeviceGetName answers what is no text"]


def test_a_machine_without_proc_still_tells_its_gpus(machine: ScriptedMachine) -> None:
    machine.prober(a_machine(a_gpu()))
    found = NvmlProbe({}, proc=machine.folder / "nowhere").probe()
    assert (only(found).wsl, only(found).free_bytes) == (False, 39 * GIB)


# The stand-in is as strict as the driver.


def test_the_stand_in_refuses_another_version_of_a_structure(machine: ScriptedMachine) -> None:
    machine.prober(a_machine(a_gpu()))
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        with pytest.raises(pynvml.NVMLError) as caught:
            pynvml.nvmlDeviceGetMemoryInfo(handle, 0x01000028)
        assert caught.value.value == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    finally:
        pynvml.nvmlShutdown()


def test_the_stand_in_answers_nothing_before_it_is_started(machine: ScriptedMachine) -> None:
    machine.prober(a_machine(a_gpu()))
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlDeviceGetCount()
    assert caught.value.value == pynvml.NVML_ERROR_UNINITIALIZED


def test_every_probe_ends_nvml_again(machine: ScriptedMachine) -> None:
    machine.probe(a_machine(a_gpu()))
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlDeviceGetCount()
    assert caught.value.value == pynvml.NVML_ERROR_UNINITIALIZED
