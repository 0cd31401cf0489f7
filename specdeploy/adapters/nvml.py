"""Asks NVML about GPUs; the only module that imports pynvml.

A question that a driver or device does not answer is answered with None. What pynvml does was
read in nvidia-ml-py 12.550 to 13.615: ``nvmlInit`` loads ``libnvidia-ml.so.1`` and calls
``nvmlInitWithFlags``; a function that the library lacks raises as if it had returned
FUNCTION_NOT_FOUND; lists of processes are asked for with ``_v3`` names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final, NamedTuple, final

from specdeploy.core.devices import ComputeMode, GpuProcess
from specdeploy.errors import MissingToolError

# Statuses of nvmlReturn_t, which are part of NVML's ABI.
_NO_PERMISSION: Final = 4
_DRIVER_NOT_LOADED: Final = 9
_LIBRARY_NOT_FOUND: Final = 12
_VERSION_MISMATCH: Final = 18
_LOST: Final = frozenset({15, 16, 28})  # GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND
# INVALID_ARGUMENT (a link or instance beyond the last), NOT_SUPPORTED, NOT_FOUND,
# FUNCTION_NOT_FOUND, NO_DATA, ARGUMENT_VERSION_MISMATCH, DEPRECATED
_NO_ANSWER: Final = frozenset({2, 3, 6, 13, 21, 25, 26})
_NOT_AVAILABLE: Final = 0xFFFFFFFF  # what some drivers answer instead of NOT_SUPPORTED

_COMPUTE_MODES: Final[tuple[ComputeMode, ...]] = (
    "default",
    "exclusive_thread",
    "prohibited",
    "exclusive_process",
)
_PROCESS_LISTS: Final = ("Compute", "Graphics", "MPSCompute")
_ADDRESSING_ATS: Final = 2
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_MOST_LINKS: Final = 36
_MW_PER_W: Final = 1000.0

_REASONS: Final = {
    _LIBRARY_NOT_FOUND: (
        "the NVIDIA driver's library, libnvidia-ml.so.1, is not on this machine",
        "install the NVIDIA driver, or start the container with `--gpus all`",
    ),
    _DRIVER_NOT_LOADED: (
        "the NVIDIA driver is installed and not loaded",
        "load it with `modprobe nvidia`; `dmesg` tells why it did not load",
    ),
    _VERSION_MISMATCH: (
        "the loaded NVIDIA driver and its library are of different versions",
        "restart the machine, as after every update of the driver",
    ),
    _NO_PERMISSION: (
        "this user may not talk to the NVIDIA driver",
        "give it access to /dev/nvidiactl and /dev/nvidia*",
    ),
}


class DeviceLostError(Exception):
    """A device went away between two questions; says what NVML said."""


class Memory(NamedTuple):
    """Bytes of one device; ``reserved`` is None when NVML counts it as used."""

    total: int
    free: int
    used: int
    reserved: int | None


@dataclass(frozen=True, slots=True)
class Handle:
    """A device that NVML knows, or one of its MIG instances, and NVML's own word for it."""

    value: object
    index: int
    uuid: str
    name: str
    bus_id: str | None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@contextmanager
def nvml_session() -> Iterator[Nvml]:
    """Start NVML and end it again; sessions may overlap.

    Raises:
        MissingToolError: it cannot be started; says why and what to do.
    """
    try:
        # Only a command that asks about GPUs pays for it.
        import pynvml  # noqa: PLC0415
    except ImportError as error:
        raise MissingToolError(
            "the Python package nvidia-ml-py is not installed", hint="pip install nvidia-ml-py"
        ) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _absent(error) from error
    try:
        yield Nvml(pynvml)
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _absent(error: Exception) -> MissingToolError:
    message, hint = _REASONS.get(
        _status(error),
        (f"NVML does not start: {error}", "run `nvidia-smi`, which should say the same"),
    )
    return MissingToolError(message, hint=hint)


def _status(error: Exception) -> int:
    return int(getattr(error, "value", 0))


@final
class Nvml:
    """Questions to a started NVML.

    What is not answered is None. Every method about a device raises DeviceLostError when the
    device has gone.
    """

    def __init__(self, library: ModuleType) -> None:
        self._library = library
        self._notes: dict[str, None] = {}  # in order, each once

    def take_notes(self) -> list[str]:
        """Return what was refused since the last call, for another reason than not supported."""
        taken, self._notes = list(self._notes), {}
        return taken

    def driver_version(self) -> str | None:
        """Return the driver's version."""
        return self._text("nvmlSystemGetDriverVersion")

    def cuda_version(self) -> str | None:
        """Return the newest CUDA that the driver runs, such as 12.4."""
        version = self._number("nvmlSystemGetCudaDriverVersion_v2")
        return None if version is None else f"{version // 1000}.{version % 1000 // 10}"

    def handles(self) -> list[Handle | None]:
        """Return the devices in PCI order; None for one that is there and cannot be asked.

        NVML counts in that order; it is made sure of where every device tells its place.
        """
        count = self._number("nvmlDeviceGetCount") or 0
        found = [self._handle(number) for number in range(count)]
        places = {handle.bus_id: handle for handle in found if handle and handle.bus_id}
        if len(places) < count:
            return found
        ordered = sorted(places, key=lambda bus_id: [int(n, 16) for n in re.split("[:.]", bus_id)])
        return [replace(places[bus_id], index=index) for index, bus_id in enumerate(ordered)]

    def in_mig_mode(self, handle: Handle) -> bool:
        """Tell whether the device is split."""
        modes = self._ask("nvmlDeviceGetMigMode", handle.value)
        return isinstance(modes, list) and modes[0] == 1

    def instances(self, handle: Handle) -> list[Handle]:
        """Return the MIG instances of a device; their numbers may have gaps."""
        found = []
        for number in range(self._number("nvmlDeviceGetMaxMigDeviceCount", handle.value) or 0):
            value = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle.value, number)
            uuid = None if value is None else self._text("nvmlDeviceGetUUID", value)
            if uuid is not None:
                found.append(self._instance(handle, value, uuid))
        return found

    def sm(self, handle: Handle) -> int | None:
        """Return the compute capability x 10."""
        capability = self._ask("nvmlDeviceGetCudaComputeCapability", handle.value)
        return 10 * capability[0] + capability[1] if isinstance(capability, tuple) else None

    def memory(self, handle: Handle) -> Memory | None:
        """Return the device's memory; None also when it is told to be nothing."""
        version = getattr(self._library, "nvmlMemory_v2", None)
        told = self._ask("nvmlDeviceGetMemoryInfo", handle.value, version)
        if told is None:
            told = self._ask("nvmlDeviceGetMemoryInfo", handle.value)
        if told is None or not told.total:
            return None
        return Memory(told.total, told.free, told.used, getattr(told, "reserved", None))

    def is_coherent(self, handle: Handle) -> bool:
        """Tell whether the device uses the CPU's page tables."""
        return self._number("nvmlDeviceGetAddressingMode", handle.value) == _ADDRESSING_ATS

    def processes(self, handle: Handle) -> list[GpuProcess] | None:
        """Return who holds memory, by process id; None when no list is told."""
        lists = [self._process_list(kind, handle) for kind in _PROCESS_LISTS]
        if all(told is None for told in lists):
            return None
        held: dict[int, int | None] = {}
        for pid, used in (row for told in lists for row in told or ()):
            # A process that computes and draws is on two lists with the same memory.
            sizes = [size for size in (held.get(pid), used) if size is not None]
            held[pid] = max(sizes, default=None)
        return [
            GpuProcess(pid=pid, name=self._text("nvmlSystemGetProcessName", pid), used_bytes=used)
            for pid, used in sorted(held.items())
        ]

    def compute_mode(self, handle: Handle) -> ComputeMode | None:
        """Return who may use the device."""
        mode = self._number("nvmlDeviceGetComputeMode", handle.value)
        return None if mode is None or mode >= len(_COMPUTE_MODES) else _COMPUTE_MODES[mode]

    def link_facts(self, handle: Handle) -> dict[str, float | int | None]:
        """Return power, clocks, PCIe and NVLink, by their field of ``GpuDevice``."""
        clocks = {
            f"{prefix}{word}_clock_mhz": self._number(
                f"nvmlDeviceGet{kind}Info", handle.value, clock
            )
            for prefix, kind in (("", "Clock"), ("max_", "MaxClock"))
            for word, clock in (("sm", _CLOCK_SM), ("memory", _CLOCK_MEMORY))
        }
        return {
            "power_limit_w": self._watts("nvmlDeviceGetEnforcedPowerLimit", handle),
            "power_draw_w": self._watts("nvmlDeviceGetPowerUsage", handle),
            "pcie_gen": self._number("nvmlDeviceGetCurrPcieLinkGeneration", handle.value),
            "max_pcie_gen": self._number("nvmlDeviceGetMaxPcieLinkGeneration", handle.value),
            "pcie_width": self._number("nvmlDeviceGetCurrPcieLinkWidth", handle.value),
            "nvlinks": self._links(handle),
            **clocks,
        }

    def _handle(self, number: int) -> Handle | None:
        try:
            value = self._ask("nvmlDeviceGetHandleByIndex", number)
            uuid = None if value is None else self._text("nvmlDeviceGetUUID", value)
            if uuid is None:
                self._note(f"GPU {number} cannot be asked for its UUID")
                return None
            name = self._text("nvmlDeviceGetName", value) or "unknown GPU"
            place = self._ask("nvmlDeviceGetPciInfo", value)
        except DeviceLostError as error:
            self._note(f"GPU {number} cannot be used: {error}")
            return None
        return Handle(value, number, uuid, name, None if place is None else str(place.busId))

    def _instance(self, parent: Handle, value: object, uuid: str) -> Handle:
        return Handle(
            value,
            parent.index,
            uuid,
            self._text("nvmlDeviceGetName", value) or f"{parent.name} MIG",
            parent.bus_id,
            gpu_instance=self._number("nvmlDeviceGetGpuInstanceId", value),
            compute_instance=self._number("nvmlDeviceGetComputeInstanceId", value),
        )

    def _process_list(self, kind: str, handle: Handle) -> list[tuple[int, int | None]] | None:
        function = f"nvmlDeviceGet{kind}RunningProcesses"
        told = self._ask(function, handle.value)
        if told is None:  # drivers before 510 have _v2 only
            told = self._ask(f"{function}_v2", handle.value)
        return None if told is None else [(row.pid, row.usedGpuMemory) for row in told]

    def _links(self, handle: Handle) -> int | None:
        states = []
        for link in range(_MOST_LINKS):
            state = self._number("nvmlDeviceGetNvLinkState", handle.value, link)
            if state is None:
                break
            states.append(state)
        return sum(states) if states else None

    def _watts(self, function: str, handle: Handle) -> float | None:
        milliwatts = self._number(function, handle.value)
        return None if milliwatts is None else milliwatts / _MW_PER_W

    def _number(self, function: str, *arguments: object) -> int | None:
        answer = self._ask(function, *arguments)
        return None if answer is None or answer == _NOT_AVAILABLE else int(answer)

    def _text(self, function: str, *arguments: object) -> str | None:
        answer = self._ask(function, *arguments)
        return None if answer is None else str(answer)

    def _note(self, sentence: str) -> None:
        self._notes[sentence] = None

    def _ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - pynvml has no types
        """Return what ``function`` of pynvml answers; None is no answer."""
        call = getattr(self._library, function, None)
        if call is None:  # an older nvidia-ml-py
            return None
        try:
            return call(*arguments)
        except self._library.NVMLError as error:
            if _status(error) in _LOST:
                raise DeviceLostError(str(error)) from error
            if _status(error) not in _NO_ANSWER:
                self._note(f"{function} is refused: {error}")
        except getattr(self._library, "NVMLLibraryMismatchError", ()):
            # What some of its functions make of FUNCTION_NOT_FOUND; no NVMLError.
            return None
        except UnicodeDecodeError:
            self._note(f"{function} answers what is no text")
        return None
