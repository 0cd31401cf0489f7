"""The machine's GPUs as a process started here would see them, from NVML and /proc."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from specdeploy.adapters.nvml import DeviceLostError, Handle, Nvml, nvml_session
from specdeploy.core.devices import (
    GpuDevice,
    HostMemory,
    Machine,
    has_unified_memory,
    memory_notes,
    read_meminfo,
)
from specdeploy.core.visibility import (
    Choice,
    InstalledGpu,
    MigInstance,
    Visibility,
    visible_devices,
)
from specdeploy.errors import MissingToolError

PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class _Found:
    """A device that a program sees: itself, and the GPU it is a part of when it is a MIG's."""

    device: Handle
    gpu: Handle


@final
class NvmlProbe:
    """Reads the machine anew at every call."""

    def __init__(self, environment: Mapping[str, str], *, proc: Path = PROC) -> None:
        self._environment = environment
        self._proc = proc

    def probe(self) -> Machine:
        """Return the visible devices; without any, ``error`` says why. Never fails."""
        try:
            with nvml_session() as nvml:
                return self._machine(nvml)
        except MissingToolError as error:
            return Machine(error=str(error), hint=error.hint)

    @contextmanager
    def sampler(self) -> Iterator[MemorySampler]:
        """Keep NVML started, to ask the visible devices for their used memory again and again.

        Raises:
            MissingToolError: NVML cannot be started.
        """
        with nvml_session() as nvml:
            found, _ = self._visible(nvml)
            yield MemorySampler(self, nvml, found)

    def host_memory(self) -> HostMemory:
        """Return the system's memory."""
        return read_meminfo(_read(self._proc / "meminfo"))

    def memory(self, nvml: Nvml, handle: Handle) -> dict[str, int | bool | None]:
        """Return the memory fields of ``GpuDevice``.

        Raises:
            DeviceLostError: the device has gone.
        """
        told = nvml.memory(handle)
        coherent = told is None and nvml.is_coherent(handle)
        if has_unified_memory(handle.name, answered=told is not None, coherent=coherent):
            host = self.host_memory()
            total, free = host.total_bytes, host.available_bytes
            used = None if total is None or free is None else total - free
            return {"unified": True, "total_bytes": total, "free_bytes": free, "used_bytes": used}
        if told is None:
            return {}
        return {
            "total_bytes": told.total,
            "free_bytes": told.free,
            "used_bytes": told.used,
            "reserved_bytes": told.reserved,
        }

    def _machine(self, nvml: Nvml) -> Machine:
        found, seen = self._visible(nvml)
        notes = nvml.take_notes()
        read = [self._device(nvml, item) for item in found]
        devices = [device for device in read if isinstance(device, GpuDevice)]
        notes += [lost for lost in read if isinstance(lost, str)]
        told = {"driver_version": nvml.driver_version(), "cuda_version": nvml.cuda_version()}
        told_of = [f"{finding.message} ({finding.hint})" for finding in seen.findings]
        if devices:
            return Machine(devices=devices, notes=[*notes, *told_of], **told)
        error, hint = _why_none(seen, notes)
        return Machine(notes=notes, error=error, hint=hint, **told)

    def _visible(self, nvml: Nvml) -> tuple[list[_Found], Visibility]:
        handles = nvml.handles()
        instances = [_instances(nvml, handle) for handle in handles]
        installed = [
            _installed(handle, parts) for handle, parts in zip(handles, instances, strict=True)
        ]
        seen = visible_devices(installed, self._environment)
        found = [_found(choice, handles, instances) for choice in seen.chosen]
        return [item for item in found if item is not None], seen

    def _device(self, nvml: Nvml, found: _Found) -> GpuDevice | str:
        """Return the device, or a sentence when it has gone."""
        try:
            return self._read_device(nvml, found)
        except DeviceLostError as error:
            lost = found.device
            return f"GPU {lost.index} ({lost.name}, {lost.uuid}) went away: {error}"

    def _read_device(self, nvml: Nvml, found: _Found) -> GpuDevice:
        handle = found.device
        processes = nvml.processes(handle)
        facts: dict[str, object] = {
            "index": handle.index,
            "uuid": handle.uuid,
            "name": handle.name,
            "pci_bus_id": handle.bus_id,
            "mig": handle is not found.gpu,
            "wsl": "microsoft" in _read(self._proc / "version").lower(),
            "processes": processes or [],
            # A MIG instance shares these with its GPU, and is not asked for all of them.
            "sm": nvml.sm(found.gpu),
            "compute_mode": nvml.compute_mode(found.gpu),
            **nvml.link_facts(found.gpu),
            **self.memory(nvml, handle),
        }
        device = GpuDevice.model_validate(facts)
        untold = [] if processes is not None else ["the driver does not tell who holds memory"]
        return device.evolve(notes=[*memory_notes(device), *untold, *nvml.take_notes()])


@final
class MemorySampler:
    """Asks the devices that were visible at the start for their used memory."""

    def __init__(self, probe: NvmlProbe, nvml: Nvml, found: Sequence[_Found]) -> None:
        self._probe, self._nvml = probe, nvml
        self.handles = [item.device for item in found]

    def used(self, handle: Handle, pids: Collection[int] | None) -> int | None:
        """Return the bytes used on a device, by everybody or by ``pids``; None: not told."""
        try:
            if pids is None:
                used = self._probe.memory(self._nvml, handle).get("used_bytes")
                return None if used is None else int(used)
            return self._used_by(handle, pids)
        except DeviceLostError:
            return None

    def _used_by(self, handle: Handle, pids: Collection[int]) -> int | None:
        processes = self._nvml.processes(handle)
        if processes is None:
            return None
        sizes = [process.used_bytes for process in processes if process.pid in pids]
        told = [size for size in sizes if size is not None]
        return sum(told) if len(told) == len(sizes) else None


def _instances(nvml: Nvml, handle: Handle | None) -> list[Handle] | None:
    """Return a split GPU's instances; None for a whole one, and for one that cannot be asked."""
    try:
        split = handle is not None and nvml.in_mig_mode(handle)
        return nvml.instances(handle) if handle is not None and split else None
    except DeviceLostError:
        return None


def _installed(handle: Handle | None, instances: Sequence[Handle] | None) -> InstalledGpu:
    if handle is None:
        return InstalledGpu(uuid="", name="")
    parts = [MigInstance(i.uuid, i.gpu_instance, i.compute_instance) for i in instances or ()]
    return InstalledGpu(handle.uuid, handle.name, instances is not None, tuple(parts))


def _found(
    choice: Choice, handles: Sequence[Handle | None], instances: Sequence[Sequence[Handle] | None]
) -> _Found | None:
    gpu = handles[choice.index]
    if gpu is None:
        return None
    parts = instances[choice.index]
    if choice.instance is None or parts is None:
        return _Found(gpu, gpu)
    return _Found(parts[choice.instance], gpu)


def _why_none(seen: Visibility, notes: Sequence[str]) -> tuple[str, str | None]:
    errors = [finding for finding in seen.findings if finding.severity == "error"]
    if notes and not errors:
        return f"no GPU can be used: {'; '.join(notes)}", "run `nvidia-smi`; restart the machine"
    # What hides the devices that were chosen was found last.
    for finding in (*errors, *reversed(seen.findings)):
        return finding.message, finding.hint
    return "NVML starts and finds no GPU", "see whether `lspci` lists one"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
