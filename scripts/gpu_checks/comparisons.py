"""Our reading of the GPUs beside that of others. A new comparison is a function in COMPARISONS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gpu_checks.sources import AbsentError, ask_nvidia_smi, ask_torch, bytes_of
from specdeploy.core.devices import GpuDevice, Machine
from specdeploy.core.record import Record
from specdeploy.units import MIB

Value = int | float | str | list[str] | None

# nvidia-smi rounds to MiB and is asked a moment later; other processes go on meanwhile.
SMI_SLACK_BYTES: Final = 256 * MIB
# The context of the process that asks CUDA is itself memory that is not free.
CUDA_CONTEXT_BYTES: Final = 1024 * MIB
# CUDA's total leaves out what the driver reserves: 0.3 to 0.6 GiB of published cards.
CUDA_RESERVE_BYTES: Final = 1024 * MIB
WATTS_SLACK: Final = 1.0


class Check(Record):
    """One value from two sources."""

    what: str
    source: str
    ours: Value
    theirs: Value
    agrees: bool


def compare_with_nvidia_smi(machine: Machine) -> Iterator[Check]:
    """Compare every whole device with the row of nvidia-smi that has its UUID.

    Raises:
        AbsentError: there is no nvidia-smi.
    """
    rows = ask_nvidia_smi()
    for device in machine.devices:
        row = rows.get(device.uuid)
        if device.mig:  # nvidia-smi's query tells whole GPUs
            continue
        if row is None:
            yield _check("uuid", "nvidia-smi", device.uuid, None, agrees=False)
            continue
        yield from _identity(device, row, machine.driver_version)
        if not device.unified:
            yield from _sizes(device, row)


def compare_with_torch(machine: Machine) -> Iterator[Check]:
    """Compare what CUDA shows a new process: which devices in which order, and their memory.

    Raises:
        AbsentError: there is no PyTorch with CUDA.
    """
    seen = ask_torch()
    ours = [device.uuid for device in machine.devices]
    theirs = [str(row["uuid"]) for row in seen]
    whole = not any(device.mig for device in machine.devices)
    if whole:  # PyTorch tells a MIG instance with the UUID of its GPU
        yield _check("order", "torch", ours, theirs, agrees=ours == theirs)
    for device, row in zip(machine.devices, seen, strict=False):
        told, free, total = int(row["sm"]), int(row["free"]), int(row["total"])
        yield _check(f"{device.uuid} sm", "torch", device.sm, told, agrees=device.sm == told)
        yield _near(device, "total_bytes", "torch", total, CUDA_RESERVE_BYTES)
        yield _near(device, "free_bytes", "torch", free, CUDA_CONTEXT_BYTES)


Comparison = Callable[[Machine], Iterator[Check]]

COMPARISONS: Final[tuple[Comparison, ...]] = (
    # PyTorch first: it ends, and frees what it used, before the memory is asked for.
    compare_with_torch,
    compare_with_nvidia_smi,
)


def run_comparison(compare: Comparison, machine: Machine) -> list[Check] | str:
    """Return the values compared, or why there is nobody to compare with."""
    try:
        return list(compare(machine))
    except AbsentError as error:
        return str(error)


def _identity(device: GpuDevice, row: dict[str, str | None], driver: str | None) -> Iterator[Check]:
    capability = None if device.sm is None else f"{device.sm // 10}.{device.sm % 10}"
    pairs: dict[str, tuple[Value, Value]] = {
        "name": (device.name, row["name"]),
        "index": (device.index, int(row["index"] or -1)),
        "compute capability": (capability, row["compute_cap"]),
        "driver": (driver, row["driver_version"]),
        "PCI bus": (device.pci_bus_id, row["pci.bus_id"]),
        "compute mode": (device.compute_mode, (row["compute_mode"] or "").lower() or None),
    }
    for what, (ours, theirs) in pairs.items():
        agrees = ours == theirs
        yield _check(f"{device.uuid} {what}", "nvidia-smi", ours, theirs, agrees=agrees)
    limit = None if row["power.limit"] is None else float(row["power.limit"])
    yield _check(
        f"{device.uuid} power limit",
        "nvidia-smi",
        device.power_limit_w,
        limit,
        agrees=_within(device.power_limit_w, limit, WATTS_SLACK),
    )


def _sizes(device: GpuDevice, row: dict[str, str | None]) -> Iterator[Check]:
    for field, name in (("total_bytes", "total"), ("free_bytes", "free"), ("used_bytes", "used")):
        theirs = bytes_of(row, f"memory.{name}")
        yield _near(device, field, "nvidia-smi", theirs, SMI_SLACK_BYTES)


def _near(device: GpuDevice, field: str, source: str, theirs: int | None, slack: int) -> Check:
    ours = dict(device)[field]
    agrees = _within(ours, theirs, slack)
    return _check(f"{device.uuid} {field}", source, ours, theirs, agrees=agrees)


def _within(ours: float | None, theirs: float | None, slack: float) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return abs(ours - theirs) <= slack


def _check(what: str, source: str, ours: Value, theirs: Value, *, agrees: bool) -> Check:
    return Check(what=what, source=source, ours=ours, theirs=theirs, agrees=agrees)
