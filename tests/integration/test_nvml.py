"""The GPUs of a machine, asked for through pynvml and ctypes from a scripted libnvidia-ml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
from nvml_stand_in.library import (
    NO_PERMISSION,
    NOT_SUPPORTED,
    WSL,
    ScriptedMachine,
    Section,
    a_gpu,
    a_machine,
    loaded_library,
    memory,
)

from specdeploy.core.devices import GpuDevice, GpuProcess, Machine, plannable_bytes
from specdeploy.units import GIB

# A DGX Spark's, as its owner posted it.
SPARK_MEMINFO = "MemTotal:       127600748 kB\nMemAvailable:   118566368 kB\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedMachine]:
    with loaded_library():
        yield ScriptedMachine(tmp_path, monkeypatch)


def only(machine: Machine) -> GpuDevice:
    [device] = machine.devices
    return device


def test_an_idle_gpu_is_told_with_all_its_facts(machine: ScriptedMachine) -> None:
    found = machine.probe(a_machine(a_gpu(nvlinks="1 1 0 1")))
    assert (found.driver_version, found.cuda_version, found.error) == ("550.54.15", "12.4", None)
    assert found.notes == []
    assert only(found).model_dump() == {
        "index": 0,
        "uuid": "GPU-0a5c1e2d-1111-2222-3333-444455556666",
        "name": "NVIDIA A100-SXM4-40GB",
        "pci_bus_id": "00000000:07:00.0",
        "sm": 80,
        "total_bytes": 42_949_672_960,
        "free_bytes": 41_875_931_136,
        "used_bytes": 536_870_912,
        "reserved_bytes": 536_870_912,
        "unified": False,
        "wsl": False,
        "mig": False,
        "processes": [],
        "compute_mode": "default",
        "power_limit_w": 400.0,
        "power_draw_w": 51.25,
        "sm_clock_mhz": 210,
        "max_sm_clock_mhz": 1410,
        "memory_clock_mhz": 1215,
        "max_memory_clock_mhz": 1215,
        "pcie_gen": 4,
        "max_pcie_gen": 4,
        "pcie_width": 16,
        "nvlinks": 3,
        "notes": [],
    }


OPTIONAL = [
    *("power_limit_mw", "power_draw_mw", "sm_clock", "max_sm_clock", "memory_clock"),
    *("max_memory_clock", "pcie_gen", "max_pcie_gen", "pcie_width", "compute_mode", "sm", "pci"),
]


def test_what_is_not_supported_is_null_and_never_zero(machine: ScriptedMachine) -> None:
    device = only(
        machine.probe(a_machine(a_gpu(**dict.fromkeys(OPTIONAL, None), memory=NOT_SUPPORTED)))
    )
    known = {name for name, value in device.model_dump().items() if value is not None}
    assert known == {"index", "uuid", "name", "unified", "wsl", "mig", "processes", "notes"}
    assert device.notes == ["the driver does not tell the memory"]


def test_what_a_driver_marks_as_not_available_is_null(machine: ScriptedMachine) -> None:
    device = only(machine.probe(a_machine(a_gpu(power_draw_mw=0xFFFFFFFF, pcie_width=0xFFFFFFFF))))
    assert (device.power_draw_w, device.pcie_width) == (None, None)


def test_what_is_refused_for_another_reason_is_said(machine: ScriptedMachine) -> None:
    device = only(machine.probe(a_machine(a_gpu(power_limit_mw=NO_PERMISSION, sm="error 999"))))
    assert (device.power_limit_w, device.sm) == (None, None)
    assert device.notes == [
        "nvmlDeviceGetCudaComputeCapability is refused: Unknown Error",
        "nvmlDeviceGetEnforcedPowerLimit is refused: Insufficient Permissions",
    ]


def test_a_memory_of_nothing_is_not_known(machine: ScriptedMachine) -> None:
    device = only(machine.probe(a_machine(a_gpu(memory="0 0 0 0"))))
    assert (device.total_bytes, device.free_bytes, device.unified) == (None, None, False)


# BL-105: the memory of a GB10 is the system's.


@pytest.mark.parametrize("answer", [NOT_SUPPORTED, memory(GIB, free=GIB // 2), "0 0 0 0"])
def test_a_gb10_has_the_systems_memory_whatever_the_driver_answers(
    machine: ScriptedMachine, answer: str
) -> None:
    gpu = a_gpu(name="NVIDIA GB10", sm=121, memory=answer, pcie_gen=NOT_SUPPORTED)
    device = only(machine.probe(a_machine(gpu), meminfo=SPARK_MEMINFO))
    assert device.unified
    assert device.total_bytes == 130_663_165_952
    assert device.free_bytes == 121_411_960_832
    assert device.used_bytes == 9_251_205_120
    assert device.notes[0] == "unified memory, shared with CPU"
    assert plannable_bytes(device) == 121_411_960_832 - 13_066_316_595


@pytest.mark.skipif(
    not hasattr(pynvml, "nvmlDeviceGetAddressingMode"), reason="this nvidia-ml-py cannot ask"
)
def test_a_coherent_gpu_that_tells_no_memory_has_the_systems(machine: ScriptedMachine) -> None:
    gpu = a_gpu(name="NVIDIA N1X", addressing_mode=2, memory=NOT_SUPPORTED)
    device = only(machine.probe(a_machine(gpu), meminfo=SPARK_MEMINFO))
    assert (device.unified, device.total_bytes) == (True, 130_663_165_952)


def test_a_coherent_gpu_with_memory_of_its_own_keeps_it(machine: ScriptedMachine) -> None:
    gpu = a_gpu(name="NVIDIA GH200 480GB", addressing_mode=2)
    device = only(machine.probe(a_machine(gpu), meminfo=SPARK_MEMINFO))
    assert (device.unified, device.total_bytes) == (False, 40 * GIB)


def test_a_unified_gpu_on_a_kernel_that_tells_nothing_has_no_known_memory(
    machine: ScriptedMachine,
) -> None:
    device = only(machine.probe(a_machine(a_gpu(name="NVIDIA GB10", memory=NOT_SUPPORTED))))
    assert (device.unified, device.total_bytes, device.free_bytes) == (True, None, None)


# BL-107: CUDA_VISIBLE_DEVICES holds indices, UUIDs and MIG ids.

GPU_ID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
MIG_ID = "MIG-377e0049-554c-540b-93c6-d0976f8426cb"


def a_mixed_box() -> dict[str, Section]:
    split = a_gpu(2, mig=1, max_mig=7)
    sections = a_machine(a_gpu(0), a_gpu(1, uuid=GPU_ID), split)
    sections["mig 2 3"] = {
        "uuid": MIG_ID,
        "name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "memory": memory(5 * GIB, free=4 * GIB),
        "compute": "77:1000",
        "gpu_instance": 9,
        "compute_instance": 0,
    }
    return sections


@pytest.mark.parametrize(
    ("asked", "indices"),
    [
        (GPU_ID, [1]),
        ("GPU-8932f937", [1]),
        ("0, 1", [0, 1]),
        ("1,0", [1, 0]),
        ("0,junk,1", [0]),
        ("", []),
        ("-1", []),
    ],
)
def test_the_devices_of_the_variable_are_told_in_its_order(
    machine: ScriptedMachine, asked: str, indices: list[int]
) -> None:
    found = machine.probe(a_mixed_box(), {"CUDA_VISIBLE_DEVICES": asked})
    assert [device.index for device in found.devices] == indices
    assert (found.error is None) is bool(indices)


def test_a_mig_instance_has_its_own_memory_and_its_gpus_capability(
    machine: ScriptedMachine,
) -> None:
    device = only(machine.probe(a_mixed_box(), {"CUDA_VISIBLE_DEVICES": MIG_ID}))
    assert (device.mig, device.uuid, device.index) == (True, MIG_ID, 2)
    assert device.name == "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert (device.total_bytes, device.free_bytes, device.sm) == (5 * GIB, 4 * GIB, 80)
    assert [process.pid for process in device.processes] == [77]


def test_a_mig_instance_is_found_by_its_path(machine: ScriptedMachine) -> None:
    path = "MIG-GPU-2a5c1e2d-1111-2222-3333-444455556666/9/0"
    assert only(machine.probe(a_mixed_box(), {"CUDA_VISIBLE_DEVICES": path})).uuid == MIG_ID


def test_a_gpu_in_mig_mode_without_instances_is_the_reason_for_none(
    machine: ScriptedMachine,
) -> None:
    found = machine.probe(a_machine(a_gpu(mig=1, max_mig=7)))
    assert found.devices == []
    assert "MIG mode and has no instance" in (found.error or "")


def test_an_ambiguous_uuid_is_an_error_that_says_so(machine: ScriptedMachine) -> None:
    found = machine.probe(a_machine(a_gpu(0), a_gpu(1)), {"CUDA_VISIBLE_DEVICES": "GPU-"})
    assert found.devices == []
    assert "2 devices begin with" in (found.error or "")


# BL-109: NVML's order is not CUDA's.


def two_cards() -> dict[str, Section]:
    small = a_gpu(0, name="NVIDIA GeForce GTX 745", memory=memory(4 * GIB, free=4 * GIB))
    large = a_gpu(1, name="NVIDIA GeForce GTX 1080 Ti", memory=memory(11 * GIB, free=11 * GIB))
    return a_machine(small, large)


@pytest.mark.parametrize("asked", [{}, {"CUDA_VISIBLE_DEVICES": "0"}])
def test_a_mixed_box_without_a_fixed_order_is_warned_about(
    machine: ScriptedMachine, asked: dict[str, str]
) -> None:
    [note] = machine.probe(two_cards(), asked).notes
    assert "CUDA_DEVICE_ORDER" in note


@pytest.mark.parametrize(
    "asked",
    [{"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES": "GPU-0a,GPU-1a"}],
)
def test_a_mixed_box_with_a_fixed_order_is_not(
    machine: ScriptedMachine, asked: dict[str, str]
) -> None:
    found = machine.probe(two_cards(), asked)
    assert found.notes == []
    assert [device.total_bytes for device in found.devices] == [4 * GIB, 11 * GIB]


def test_cards_that_are_alike_need_no_order(machine: ScriptedMachine) -> None:
    assert machine.probe(a_machine(a_gpu(0), a_gpu(1))).notes == []


def test_devices_are_numbered_by_their_place_on_the_bus(machine: ScriptedMachine) -> None:
    found = machine.probe(
        a_machine(a_gpu(0, pci="00000001:0A:00.0"), a_gpu(1, pci="00000000:FF:00.0"), a_gpu(2))
    )
    assert [(device.index, device.uuid[:5]) for device in found.devices] == [
        (0, "GPU-2"),
        (1, "GPU-1"),
        (2, "GPU-0"),
    ]


# BL-111: other processes hold memory.


def test_what_other_processes_hold_is_subtracted_and_named(machine: ScriptedMachine) -> None:
    gpu = a_gpu(
        memory=memory(24 * GIB, free=21 * GIB),
        compute=f"4242:{2 * GIB} 17:?",
        graphics=f"4242:{2 * GIB} 99:{GIB}",
    )
    device = only(machine.probe(a_machine(gpu, process_4242="/usr/bin/python3")))
    assert plannable_bytes(device) == 22_548_578_304
    assert device.processes == [
        GpuProcess(pid=17, name=None, used_bytes=None),
        GpuProcess(pid=99, name=None, used_bytes=GIB),
        GpuProcess(pid=4242, name="/usr/bin/python3", used_bytes=2 * GIB),
    ]
    assert "2,147,483,648 bytes held by /usr/bin/python3 (pid 4242)" in device.notes


def test_memory_of_processes_that_are_not_listed_is_told(machine: ScriptedMachine) -> None:
    device = only(machine.probe(a_machine(a_gpu(memory=memory(24 * GIB, free=21 * GIB)))))
    assert device.notes == ["3,221,225,472 bytes held by processes that cannot be seen from here"]


def test_a_driver_that_lists_no_processes_is_not_one_without_any(machine: ScriptedMachine) -> None:
    device = only(machine.probe(a_machine(a_gpu(compute=None, graphics=None))))
    assert device.processes == []
    assert device.notes == ["the driver does not tell who holds memory"]


@pytest.mark.parametrize(
    ("mode", "compute", "name", "plannable"),
    [
        (0, "5:1", "default", 39 * GIB),
        (2, "", "prohibited", 0),
        (3, "", "exclusive_process", 39 * GIB),
        (3, "5:1", "exclusive_process", 0),
        (7, "5:1", None, 39 * GIB),
    ],
)
def test_a_device_that_refuses_new_processes_is_told(
    machine: ScriptedMachine, mode: int, compute: str, name: str | None, plannable: int
) -> None:
    device = only(machine.probe(a_machine(a_gpu(compute_mode=mode, compute=compute))))
    assert (device.compute_mode, plannable_bytes(device)) == (name, plannable)


def test_under_wsl_windows_keeps_a_part(machine: ScriptedMachine) -> None:
    device = only(machine.probe(a_machine(a_gpu(compute=None, graphics=None)), version=WSL))
    assert device.wsl
    assert plannable_bytes(device) == 39 * GIB - 8 * GIB
    assert "8,589,934,592 bytes are left to Windows" in device.notes
