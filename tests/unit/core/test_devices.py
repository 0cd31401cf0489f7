"""What a plan may start from, on each kind of GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeploy.core.devices import (
    ComputeMode,
    GpuDevice,
    GpuProcess,
    HostMemory,
    Machine,
    has_unified_memory,
    memory_notes,
    plannable_bytes,
    planning_gpus,
    read_meminfo,
    reserve_bytes,
)
from specdeploy.core.hardware import find_gpu
from specdeploy.errors import MissingToolError
from specdeploy.units import GIB

# /proc/meminfo of a DGX Spark, as its owner posted it.
SPARK_TOTAL = 130_663_165_952
SPARK_AVAILABLE = 121_411_960_832
SPARK = """MemTotal:       127600748 kB
MemFree:         1234567 kB
MemAvailable:   118566368 kB
HugePages_Total:       0
"""


def a_device(**facts: object) -> GpuDevice:
    return GpuDevice.model_validate({"index": 0, "uuid": "GPU-a", "name": "NVIDIA A10", **facts})


def spark() -> GpuDevice:
    return a_device(
        name="NVIDIA GB10",
        unified=True,
        total_bytes=SPARK_TOTAL,
        free_bytes=SPARK_AVAILABLE,
        used_bytes=SPARK_TOTAL - SPARK_AVAILABLE,
    )


def test_meminfo_is_read_in_units_of_1024_bytes() -> None:
    assert read_meminfo(SPARK) == HostMemory(
        total_bytes=SPARK_TOTAL, available_bytes=SPARK_AVAILABLE
    )


def test_an_old_kernel_tells_the_free_memory_only() -> None:
    assert read_meminfo("MemTotal: 8 kB\nMemFree: 3 kB\n").available_bytes == 3 * 1024


@pytest.mark.parametrize("text", ["", "MemTotal: [N/A] kB\n", "MemTotal: 12 MB\n"])
def test_what_meminfo_does_not_tell_is_not_known(text: str) -> None:
    assert read_meminfo(text) == HostMemory()


@pytest.mark.parametrize(
    ("name", "answered", "coherent", "unified"),
    [
        ("NVIDIA GB10", False, False, True),
        ("NVIDIA GB10", True, True, True),
        ("NVIDIA Thor", True, False, True),
        ("Orin (nvgpu)", False, False, True),
        ("NVIDIA GB100", True, True, False),
        ("NVIDIA GH200 480GB", True, True, False),
        ("NVIDIA N1X", False, True, True),
        ("NVIDIA A10", False, False, False),
    ],
)
def test_memory_is_the_systems_by_name_or_where_a_coherent_gpu_tells_none(
    name: str, *, answered: bool, coherent: bool, unified: bool
) -> None:
    assert has_unified_memory(name, answered=answered, coherent=coherent) is unified


def test_a_plan_starts_from_the_free_memory_and_not_from_the_total() -> None:
    device = a_device(total_bytes=24 * GIB, free_bytes=21 * GIB, used_bytes=3 * GIB)
    assert plannable_bytes(device) == 21 * GIB


def test_a_tenth_of_a_unified_memory_is_left_to_the_operating_system() -> None:
    assert reserve_bytes(spark()) == 13_066_316_595
    assert plannable_bytes(spark()) == SPARK_AVAILABLE - 13_066_316_595


def test_a_fifth_of_a_card_that_windows_shares_is_left_to_it() -> None:
    device = a_device(wsl=True, total_bytes=20 * GIB, free_bytes=19 * GIB)
    assert plannable_bytes(device) == 15 * GIB


def test_nothing_is_planned_below_zero() -> None:
    assert plannable_bytes(a_device(wsl=True, total_bytes=20 * GIB, free_bytes=GIB)) == 0


@pytest.mark.parametrize(
    ("mode", "held", "plannable"),
    [
        ("default", True, 7),
        ("prohibited", False, 0),
        ("exclusive_process", False, 7),
        ("exclusive_process", True, 0),
        ("exclusive_thread", True, 0),
        (None, True, 7),
    ],
)
def test_a_device_that_refuses_new_processes_has_nothing_to_plan_with(
    mode: ComputeMode | None, *, held: bool, plannable: int
) -> None:
    processes = [GpuProcess(pid=1)] if held else []
    device = a_device(total_bytes=9, free_bytes=7, compute_mode=mode, processes=processes)
    assert plannable_bytes(device) == plannable


def test_memory_that_nobody_tells_is_asked_for_by_name() -> None:
    with pytest.raises(MissingToolError, match=r"GPU 0 \(NVIDIA A10\)") as caught:
        plannable_bytes(a_device(total_bytes=24 * GIB))
    assert "--gpu" in (caught.value.hint or "")


@given(
    total=st.integers(0, 2**40),
    free=st.integers(0, 2**40),
    unified=st.booleans(),
    wsl=st.booleans(),
)
def test_a_plan_never_starts_from_more_than_is_free(
    *, total: int, free: int, unified: bool, wsl: bool
) -> None:
    device = a_device(total_bytes=total, free_bytes=free, unified=unified, wsl=wsl)
    assert 0 <= plannable_bytes(device) <= free


def test_notes_name_who_holds_the_memory() -> None:
    processes = [
        GpuProcess(pid=4242, name="/usr/bin/python3", used_bytes=3 * GIB),
        GpuProcess(pid=7),
    ]
    notes = memory_notes(a_device(total_bytes=24 * GIB, free_bytes=21 * GIB, processes=processes))
    assert notes == [
        "3,221,225,472 bytes held by /usr/bin/python3 (pid 4242)",
        "memory held by a process (pid 7)",
    ]


def test_notes_tell_of_memory_that_no_listed_process_holds() -> None:
    processes = [GpuProcess(pid=1, name="a", used_bytes=GIB)]
    device = a_device(
        total_bytes=9 * GIB, free_bytes=5 * GIB, used_bytes=4 * GIB, processes=processes
    )
    assert memory_notes(device)[-1] == (
        "3,221,225,472 bytes held by processes that cannot be seen from here"
    )


def test_what_the_driver_uses_for_itself_is_not_called_a_process() -> None:
    device = a_device(total_bytes=9 * GIB, free_bytes=8 * GIB, used_bytes=GIB - 1)
    assert memory_notes(device) == []


def test_notes_flag_unified_memory_and_its_reserve() -> None:
    assert memory_notes(spark()) == [
        "unified memory, shared with CPU",
        "13,066,316,595 bytes are left to the operating system",
    ]


def test_notes_tell_of_windows_and_of_memory_that_is_not_told() -> None:
    assert memory_notes(a_device(wsl=True, total_bytes=50)) == [
        "the driver does not tell the memory",
        "10 bytes are left to Windows",
    ]


def test_notes_tell_the_compute_mode_that_limits_a_device() -> None:
    facts = {"total_bytes": 9, "free_bytes": 7}
    assert memory_notes(a_device(**facts, compute_mode="prohibited")) == [
        "compute mode prohibited: no new process may use it"
    ]
    assert memory_notes(a_device(**facts, compute_mode="exclusive_process")) == [
        "compute mode exclusive_process: one process at a time"
    ]


def test_a_plan_takes_every_device_that_is_here() -> None:
    machine = Machine(devices=[a_device(sm=86, total_bytes=9, free_bytes=7), spark()])
    assert [(gpu.name, gpu.sm, gpu.bytes, gpu.source) for gpu in planning_gpus(machine, None)] == [
        ("NVIDIA A10", 86, 7, "free now"),
        ("NVIDIA GB10", None, 108_345_644_237, "free now"),
    ]


def test_without_a_gpu_planning_goes_on_from_the_named_one_and_says_so() -> None:
    machine = Machine(error="no driver here")
    [gpu] = planning_gpus(machine, find_gpu("h100-sxm"))
    assert (gpu.name, gpu.sm, gpu.bytes) == ("h100-sxm", 90, 81_559 * 1024**2)
    assert gpu.source == "named, not measured; no driver here"
    assert planning_gpus(Machine(), find_gpu("t4"))[0].source == "named, not measured"


@pytest.mark.parametrize(
    ("machine", "told"),
    [(Machine(error="no driver here"), "no driver here"), (Machine(), "there is no GPU")],
)
def test_without_a_gpu_and_a_name_planning_says_what_is_missing(
    machine: Machine, told: str
) -> None:
    with pytest.raises(MissingToolError, match=told) as caught:
        planning_gpus(machine, None)
    assert "--gpu NAME" in (caught.value.hint or "")
