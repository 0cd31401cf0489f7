"""GPUs as they are: what each has, who holds its memory, what a plan may start from."""

from __future__ import annotations

import re
from typing import Final, Literal

from pydantic import Field

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.record import Record
from specdeploy.errors import MissingToolError
from specdeploy.units import KIB, MIB

ComputeMode = Literal["default", "exclusive_thread", "prohibited", "exclusive_process"]

# Chips whose GPU has no memory of its own. NVML refuses to answer for some of them, and for
# others answers by driver version, so the name decides.
UNIFIED_NAMES: Final = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra)\b", re.IGNORECASE)
# One part in ten: owners of a GB10 report that plans above 0.90 of the memory end in swapping or
# a killed process, although the kernel calls more of it available.
UNIFIED_RESERVE_PARTS: Final = 10
# One part in five: microsoft/WSL#41176 measured that allocations fail at 0.88 of a card and
# succeed at 0.80 while NVML still reports the difference as free.
WSL_RESERVE_PARTS: Final = 5
# The driver itself uses some hundred MiB of a GPU, which a version 1 answer counts as used.
SMALLEST_UNSEEN: Final = 1024 * MIB


class HostMemory(Record):
    """The machine's own memory; null when the kernel does not tell."""

    total_bytes: int | None = None
    available_bytes: int | None = Field(default=None, description="Usable without swapping.")


class GpuProcess(Record):
    """A process that holds memory of a GPU; null means that the driver does not tell."""

    pid: int
    name: str | None = None
    used_bytes: int | None = None


class GpuDevice(Record):
    """One GPU, or one MIG instance of it. Null means not supported or not told, never zero."""

    index: int = Field(
        description="In PCI order, as nvidia-smi numbers them; a MIG's is its GPU's."
    )
    uuid: str
    name: str
    pci_bus_id: str | None = None
    sm: int | None = Field(default=None, description="Compute capability x 10.")
    total_bytes: int | None = None
    free_bytes: int | None = Field(
        default=None, description="What other processes hold is subtracted already."
    )
    used_bytes: int | None = None
    reserved_bytes: int | None = Field(default=None, description="Held by the driver itself.")
    unified: bool = Field(default=False, description="Memory is the system's, shared with the CPU.")
    wsl: bool = Field(default=False, description="Windows shares the GPU.")
    mig: bool = False
    processes: list[GpuProcess] = []
    compute_mode: ComputeMode | None = None
    power_limit_w: float | None = None
    power_draw_w: float | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    pcie_gen: int | None = None
    max_pcie_gen: int | None = None
    pcie_width: int | None = None
    nvlinks: int | None = Field(default=None, description="Links that are up.")
    notes: list[str] = []


class Machine(Record):
    """The GPUs that a process started here would see, in CUDA's order."""

    driver_version: str | None = None
    cuda_version: str | None = Field(default=None, description="Newest that the driver runs.")
    devices: list[GpuDevice] = []
    notes: list[str] = []
    error: str | None = Field(default=None, description="Why there are no devices.")
    hint: str | None = Field(default=None, description="What to do about the error.")


class MemoryUse(Record):
    """What a watch saw on one device; null when the driver did not tell."""

    index: int
    uuid: str
    baseline_bytes: int | None = Field(description="At the start of the watch.")
    peak_bytes: int | None
    samples: int


class PlanningGpu(Record):
    """Memory that a plan may count on, and where the figure comes from."""

    name: str
    sm: int | None
    bytes: int
    source: str


def read_meminfo(text: str) -> HostMemory:
    """Return the totals of ``/proc/meminfo``; the kernel's "kB" are 1024 bytes.

    A kernel without ``MemAvailable`` (before 3.14) still tells ``MemFree``, which is less.
    """
    rows = re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)
    found = {name: int(count) * KIB for name, count in rows}
    return HostMemory(
        total_bytes=found.get("MemTotal"),
        available_bytes=found.get("MemAvailable", found.get("MemFree")),
    )


def has_unified_memory(name: str, *, answered: bool, coherent: bool) -> bool:
    """Tell whether a GPU's memory is the system's.

    Args:
        name: The driver's name of it.
        answered: NVML told its memory.
        coherent: It uses the CPU's page tables (addressing mode ATS). A GPU with memory of its
            own may do so too, and then NVML tells that memory.
    """
    return UNIFIED_NAMES.search(name) is not None or (coherent and not answered)


def reserve_bytes(device: GpuDevice) -> int:
    """Return what a plan leaves free on a device whose memory others may claim at any time.

    A tenth of a unified memory for the operating system, a fifth of a card that Windows shares;
    the sources stand beside ``UNIFIED_RESERVE_PARTS`` and ``WSL_RESERVE_PARTS``.
    """
    total = device.total_bytes or 0
    if device.unified:
        return total // UNIFIED_RESERVE_PARTS
    return total // WSL_RESERVE_PARTS if device.wsl else 0


def is_closed(device: GpuDevice) -> bool:
    """Tell whether a new process is refused: prohibited, or exclusive and taken.

    Only a process that computes takes an exclusive device, but the driver does not always tell
    which ones do, so each one listed counts.
    """
    if device.compute_mode == "prohibited":
        return True
    exclusive = device.compute_mode in {"exclusive_process", "exclusive_thread"}
    return exclusive and bool(device.processes)


def plannable_bytes(device: GpuDevice) -> int:
    """Return the bytes that a plan may start from.

    The free memory as NVML tells it (others' is subtracted there), less ``reserve_bytes``; on a
    unified device the kernel's MemAvailable is the free memory. 0 when a new process is refused.

    Raises:
        MissingToolError: nobody tells how much is free.
    """
    if is_closed(device):
        return 0
    if device.free_bytes is None:
        raise MissingToolError(
            f"the driver does not tell how much memory of GPU {device.index} ({device.name}) "
            "is free",
            hint="name the GPU to plan for with --gpu NAME or --gpu custom:MIB:SM",
        )
    return max(0, device.free_bytes - reserve_bytes(device))


def planning_gpus(machine: Machine, named: GpuSpec | None) -> list[PlanningGpu]:
    """Return the memory to plan with: the named GPU's, else what each device here has free.

    Raises:
        MissingToolError: no GPU is named, and there is none here or its memory is not known.
    """
    if named is not None:
        source = "named, not measured" + (f"; {machine.error}" if machine.error else "")
        return [
            PlanningGpu(name=named.name, sm=named.sm, bytes=named.memory_mib * MIB, source=source)
        ]
    if not machine.devices:
        raise MissingToolError(
            machine.error or "there is no GPU",
            hint="name the GPU to plan for with --gpu NAME or --gpu custom:MIB:SM",
        )
    return [
        PlanningGpu(
            name=device.name, sm=device.sm, bytes=plannable_bytes(device), source="free now"
        )
        for device in machine.devices
    ]


def memory_notes(device: GpuDevice) -> list[str]:
    """Return one sentence for each thing that changes what a plan may use."""
    notes = []
    if device.unified:
        notes.append("unified memory, shared with CPU")
    if device.total_bytes is None or device.free_bytes is None:
        notes.append("the driver does not tell the memory")
    if reserve := reserve_bytes(device):
        keeper = "the operating system" if device.unified else "Windows"
        notes.append(f"{reserve:,} bytes are left to {keeper}")
    notes.extend(_held(process) for process in device.processes)
    notes.extend(_unseen(device))
    if is_closed(device):
        notes.append(f"compute mode {device.compute_mode}: no new process may use it")
    elif device.compute_mode == "exclusive_process":
        notes.append("compute mode exclusive_process: one process at a time")
    return notes


def _held(process: GpuProcess) -> str:
    size = "memory" if process.used_bytes is None else f"{process.used_bytes:,} bytes"
    return f"{size} held by {process.name or 'a process'} (pid {process.pid})"


def _unseen(device: GpuDevice) -> list[str]:
    """Name what is used and belongs to no listed process: other containers, other users."""
    told = [process.used_bytes for process in device.processes]
    if device.unified or device.used_bytes is None or None in told:
        return []
    unseen = device.used_bytes - sum(size for size in told if size is not None)
    if unseen < SMALLEST_UNSEEN:
        return []
    return [f"{unseen:,} bytes held by processes that cannot be seen from here"]
