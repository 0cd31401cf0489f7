"""Which GPUs a CUDA program would see, and in which order.

After the CUDA programming guide's page on environment variables and the MIG guide's on device
names. An index list ends at its first bad entry; a UUID may be shortened while one GPU fits it;
one MIG instance is seen, and no whole GPU beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from specdeploy.core.findings import Finding

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
PCI_ORDER: Final = "PCI_BUS_ID"
_PREFIXES: Final = ("GPU-", "MIG-")


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One compute instance of a GPU in MIG mode."""

    uuid: str
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True)
class InstalledGpu:
    """One GPU of the machine; the place in a sequence of them is its index in PCI order.

    One that is there and cannot be asked has an empty name and UUID.
    """

    uuid: str
    name: str
    mig_enabled: bool = False
    instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A GPU by its index, or one of its MIG instances by its place among them."""

    index: int
    instance: int | None = None


@dataclass(frozen=True, slots=True)
class Visibility:
    """What is seen, in CUDA's order, and what there is to say about it.

    A finding of severity ``error`` says why nothing is seen.
    """

    chosen: tuple[Choice, ...]
    findings: tuple[Finding, ...] = ()


class _StopError(Exception):
    """The list names no device at all; carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def visible_devices(
    installed: Sequence[InstalledGpu], environment: Mapping[str, str]
) -> Visibility:
    """Return what CUDA would see with the variables of ``environment``.

    Args:
        installed: In PCI order, the order in which indices are read here.
        environment: ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` of it are used.
    """
    asked = environment.get(VISIBLE)
    findings: list[Finding] = []
    try:
        if asked is None:
            chosen = [Choice(index) for index in range(len(installed))]
        else:
            chosen = _named(asked, installed, findings)
    except _StopError as stop:
        return Visibility((), (stop.finding,))
    if chosen and not (asked or "").strip().startswith(_PREFIXES):
        findings.extend(_order(installed, environment))
    seen = _as_cuda_enumerates(chosen, installed, findings)
    return Visibility(tuple(seen), tuple(findings))


def _named(asked: str, installed: Sequence[InstalledGpu], findings: list[Finding]) -> list[Choice]:
    entries = [entry.strip() for entry in asked.split(",")]
    prefix = next((prefix for prefix in _PREFIXES if entries[0].startswith(prefix)), "")
    chosen: list[Choice] = []
    for place, entry in enumerate(entries):
        choice = _find(entry, prefix, installed)
        if choice is None:
            findings.extend(_stopped(entry, place, asked))
            break
        if choice in chosen:
            raise _StopError(
                Finding(
                    code="visible-repeated",
                    severity="error",
                    message=f"{VISIBLE}={asked!r} names a device twice, and CUDA then sees none",
                    hint="name each device once",
                )
            )
        chosen.append(choice)
    return chosen


def _find(entry: str, prefix: str, installed: Sequence[InstalledGpu]) -> Choice | None:
    if prefix == "GPU-":
        return _by_uuid(entry, {Choice(i): gpu.uuid for i, gpu in enumerate(installed)}, prefix)
    if prefix == "MIG-":
        return _by_path(entry, installed) or _by_uuid(entry, _instances(installed), prefix)
    # CUDA reads an entry as C reads a number: what follows the digits is ignored.
    digits = re.match(r"\+?(\d+)", entry, re.ASCII)
    index = int(digits[1]) if digits else len(installed)
    return Choice(index) if index < len(installed) else None


def _by_uuid(entry: str, uuids: Mapping[Choice, str], prefix: str) -> Choice | None:
    fitting = [choice for choice, uuid in uuids.items() if uuid.startswith(entry)]
    if not entry.startswith(prefix) or not fitting:
        return None
    if len(fitting) > 1:
        raise _StopError(
            Finding(
                code="visible-ambiguous",
                severity="error",
                message=f"{VISIBLE} names {entry!r}, which {len(fitting)} devices begin with",
                hint=f"write more of it: {', '.join(uuids[choice] for choice in fitting)}",
            )
        )
    return fitting[0]


def _instances(installed: Sequence[InstalledGpu]) -> dict[Choice, str]:
    return {
        Choice(index, place): instance.uuid
        for index, gpu in enumerate(installed)
        for place, instance in enumerate(gpu.instances)
    }


def _by_path(entry: str, installed: Sequence[InstalledGpu]) -> Choice | None:
    """Find the older form, ``MIG-GPU-<uuid>/<GPU instance>/<compute instance>``."""
    found = re.fullmatch(r"MIG-(GPU-[^/]+)/(\d+)/(\d+)", entry)
    if found is None:
        return None
    wanted = (int(found[2]), int(found[3]))
    for index, gpu in enumerate(installed):
        for place, instance in enumerate(gpu.instances):
            ids = (instance.gpu_instance, instance.compute_instance)
            if gpu.uuid == found[1] and ids == wanted:
                return Choice(index, place)
    return None


def _as_cuda_enumerates(
    chosen: Sequence[Choice], installed: Sequence[InstalledGpu], findings: list[Finding]
) -> list[Choice]:
    """Put MIG instances in the place of GPUs that are split, as far as CUDA sees them."""
    whole, instances = [], []
    for choice in chosen:
        gpu = installed[choice.index]
        if choice.instance is not None:
            instances.append(choice)
        elif not gpu.mig_enabled:
            whole.append(choice)
        elif gpu.instances:
            instances.append(Choice(choice.index, 0))
            findings.append(_first_instance(choice.index, gpu))
        else:
            findings.append(_no_instance(choice.index, gpu))
    if not instances:
        return whole
    if others := len(whole) + len(instances) - 1:
        findings.append(_one_instance(others))
    return instances[:1]


def _order(installed: Sequence[InstalledGpu], environment: Mapping[str, str]) -> Iterator[Finding]:
    alike = len({gpu.name for gpu in installed if gpu.name}) <= 1
    if alike or environment.get(ORDER) == PCI_ORDER:
        return
    yield Finding(
        code="device-order-unknown",
        severity="warning",
        message=f"the GPUs here differ and {ORDER} is not {PCI_ORDER}: CUDA puts the fastest "
        "first, while indices here and in nvidia-smi follow the PCI bus",
        hint=f"set {ORDER}={PCI_ORDER}, or name GPUs by UUID",
    )


def _stopped(entry: str, place: int, asked: str) -> Iterator[Finding]:
    if place == 0:
        yield _hidden(asked)
        return
    yield Finding(
        code="visible-entry-unknown",
        severity="warning",
        message=f"{VISIBLE}={asked!r}: CUDA stops at {entry!r}, which is no device here, and sees "
        f"the {place} before it",
        hint="correct the entry, or leave it out",
    )


def _hidden(asked: str) -> Finding:
    return Finding(
        code="visible-none",
        severity="error",
        message=f"{VISIBLE}={asked!r} hides every GPU",
        hint=f"unset {VISIBLE}, or name a device of `nvidia-smi -L`",
    )


def _first_instance(index: int, gpu: InstalledGpu) -> Finding:
    return Finding(
        code="mig-first-instance",
        severity="warning",
        message=f"GPU {index} ({gpu.name}) is in MIG mode: CUDA takes its first instance, "
        f"{gpu.instances[0].uuid}",
        hint=f"name the instance in {VISIBLE}",
    )


def _no_instance(index: int, gpu: InstalledGpu) -> Finding:
    return Finding(
        code="mig-no-instance",
        severity="warning",
        message=f"GPU {index} ({gpu.name}) is in MIG mode and has no instance for CUDA to see",
        hint="make one with `nvidia-smi mig -cgi PROFILE -C`, or switch MIG off",
    )


def _one_instance(others: int) -> Finding:
    return Finding(
        code="mig-one-instance",
        severity="warning",
        message=f"CUDA sees one MIG instance and nothing beside it: {others} more not seen",
        hint=f"start one process for each instance, each with its own {VISIBLE}",
    )
