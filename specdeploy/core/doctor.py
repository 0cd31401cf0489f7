"""``specdeploy doctor``: is everything here that a runtime needs, and if not, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field

from specdeploy.core.devices import (
    GpuDevice,
    Machine,
    PlanningGpu,
    is_closed,
    plannable_bytes,
    planning_gpus,
)
from specdeploy.core.hardware import GpuSpec
from specdeploy.core.host import HostFacts, Lookup
from specdeploy.core.record import Document, Record
from specdeploy.errors import MissingToolError
from specdeploy.units import GIB, KIB, MIB

Status = Literal["ok", "warning", "missing"]

# Runtimes that compute on a GPU with TensorRT-LLM.
GPU_RUNTIMES: Final = frozenset({"engine", "llmapi"})
# Triton backends that a runtime's models are loaded with.
BACKENDS: Final = {
    "reference": ("python",),
    "engine": ("python", "tensorrtllm"),
    "llmapi": ("python",),
}
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 13)
# A build keeps a second copy of the weights; an engine is about as large as they are.
LEAST_DISK: Final = 256 * MIB
USUAL_DISK: Final = {"reference": 2 * GIB, "engine": 100 * GIB, "llmapi": 20 * GIB}
# Docker gives a container 64 MiB; Triton's Python models and NCCL exchange tensors there, and
# NVIDIA's containers advise --ipc=host, memlock -1 and a stack of 64 MiB when they start.
USUAL_SHARED_MEMORY: Final = GIB
USUAL_STACK: Final = 64 * MIB
USUAL_OPEN_FILES: Final = 4096
USUAL_HOST_MEMORY: Final = 4 * GIB

_IN_CONTAINER: Final = "run inside nvcr.io/nvidia/tritonserver:<release>-trtllm-python-py3"


class DoctorLine(Record):
    """One thing that was looked at."""

    name: str
    status: Status
    found: str
    remedy: str = Field(description="What to do when it is not as it should be.")


class DoctorReport(Document):
    """What ``doctor --json`` prints."""

    runtime: str
    ready: bool = Field(description="Nothing that the runtime needs is missing.")
    lines: list[DoctorLine]
    planning: list[PlanningGpu] = Field(description="What a plan made here would start from.")
    machine: Machine
    host: HostFacts

    def raise_if_missing(self) -> None:
        """Raise when something that the runtime needs is missing.

        Raises:
            MissingToolError: names all of it.
        """
        missing = [line for line in self.lines if line.status == "missing"]
        if missing:
            raise MissingToolError(
                f"the {self.runtime} runtime needs what is missing here: "
                f"{', '.join(line.name for line in missing)}",
                hint="; ".join(f"{line.name}: {line.remedy}" for line in missing),
            )


@dataclass(frozen=True, slots=True)
class DoctorQuestion:
    """The facts, and the runtime that they are judged for.

    Attributes:
        runtime: What the settings name.
        host: The machine apart from its GPUs.
        machine: Its GPUs.
        build_tools: What the runtime's build steps are run with.
        gpu: The GPU that is named to plan for, if any.
    """

    runtime: str
    host: HostFacts
    machine: Machine
    build_tools: Lookup
    gpu: GpuSpec | None = None

    @property
    def computes_on_gpu(self) -> bool:
        """Whether the runtime needs a GPU and TensorRT-LLM."""
        return self.runtime in GPU_RUNTIMES


def examine(question: DoctorQuestion) -> DoctorReport:
    """Judge every fact, in the order in which a person would mend them."""
    lines = [
        *_python(question),
        *_tools(question),
        *_gpus(question),
        *_container(question),
        *_storage(question),
        *_limits(question),
    ]
    return DoctorReport(
        runtime=question.runtime,
        ready=all(line.status != "missing" for line in lines),
        lines=lines,
        planning=_planning(question),
        machine=question.machine,
        host=question.host,
    )


def _planning(question: DoctorQuestion) -> list[PlanningGpu]:
    try:
        return planning_gpus(question.machine, question.gpu)
    except MissingToolError:
        return []


def _line(name: str, status: Status, found: str, remedy: str) -> DoctorLine:
    return DoctorLine(name=name, status=status, found=found, remedy=remedy)


def _python(question: DoctorQuestion) -> Iterator[DoctorLine]:
    major, minor = (int(number) for number in question.host.python.split(".")[:2])
    fits = OLDEST_PYTHON <= (major, minor) <= NEWEST_PYTHON
    yield _line(
        "Python",
        "ok" if fits else "missing",
        f"{question.host.python} on {question.host.system}",
        "install specdeploy with Python 3.10 to 3.13",
    )


def _tools(question: DoctorQuestion) -> Iterator[DoctorLine]:
    yield _looked_up("build tools", question.build_tools, "install what the build steps run")
    yield _looked_up("tritonserver", question.host.server, _IN_CONTAINER)
    if question.host.server.found is not None:
        yield _backends(question)
    if not question.computes_on_gpu:
        return
    version = question.host.packages.get("tensorrt_llm")
    yield _line(
        "TensorRT-LLM",
        "ok" if version else "missing",
        version or "not installed here",
        f"{_IN_CONTAINER}, or pip install 'specdeploy[trtllm]'",
    )
    if question.runtime == "engine":
        yield _program(question.host, "trtllm-build", "missing", _IN_CONTAINER)
        yield _program(
            question.host, "mpirun", "warning", "needed for tp above 1: install openmpi-bin"
        )


def _backends(question: DoctorQuestion) -> DoctorLine:
    needed = BACKENDS.get(question.runtime, ())
    lacking = [name for name in needed if name not in question.host.backends]
    return _line(
        "Triton backends",
        "missing" if lacking else "ok",
        f"no {' and no '.join(lacking)}" if lacking else ", ".join(question.host.backends),
        _IN_CONTAINER,
    )


def _looked_up(name: str, lookup: Lookup, remedy: str) -> DoctorLine:
    found = lookup.found or lookup.error or "not found"
    return _line(name, "missing" if lookup.error else "ok", found, lookup.hint or remedy)


def _program(host: HostFacts, name: str, otherwise: Status, remedy: str) -> DoctorLine:
    path = host.programs.get(name)
    return _line(name, "ok" if path else otherwise, path or "not on PATH", remedy)


def _gpus(question: DoctorQuestion) -> Iterator[DoctorLine]:
    machine = question.machine
    if machine.error is not None:
        yield _no_gpu(question, machine.error)
    else:
        yield _line(
            "NVIDIA driver",
            "ok",
            f"{machine.driver_version or 'version not told'}, CUDA up to "
            f"{machine.cuda_version or 'not told'}, {len(machine.devices)} visible",
            "update the driver when TensorRT-LLM asks for a newer CUDA",
        )
        yield from _named_instead(question)
    for place, device in enumerate(machine.devices):
        yield _gpu(place, device)
    for note in machine.notes:
        yield _line("GPUs", "warning", note, "see `nvidia-smi -L` for what is installed")


def _named_instead(question: DoctorQuestion) -> Iterator[DoctorLine]:
    if question.gpu is not None:
        [planned] = planning_gpus(question.machine, question.gpu)
        yield _line(
            "plans",
            "ok",
            f"start from {planned.name}, {_mib(planned.bytes)}, as named, not from what is here",
            "leave out --gpu and hardware.gpu to plan for the GPUs that are here",
        )


def _no_gpu(question: DoctorQuestion, error: str) -> DoctorLine:
    name_one = "to plan for another machine, name its GPU with --gpu NAME"
    remedy = f"{question.machine.hint}; {name_one}" if question.machine.hint else name_one
    if question.gpu is not None:
        [planned] = planning_gpus(question.machine, question.gpu)
        found = f"{error}; plans go on from {planned.name}, {_mib(planned.bytes)}, as named"
        return _line("GPU", "warning" if question.computes_on_gpu else "ok", found, remedy)
    if question.computes_on_gpu:
        return _line("GPU", "missing", error, remedy)
    return _line("GPU", "ok", f"{error}; the {question.runtime} runtime needs none", remedy)


def _gpu(place: int, device: GpuDevice) -> DoctorLine:
    name = f"GPU {place}"
    capability = "" if device.sm is None else f", SM {device.sm / 10:.1f}"
    notes = "".join(f"; {note}" for note in device.notes)
    if is_closed(device):
        return _line(
            name,
            "warning",
            f"{device.name}{capability}{notes}",
            "end the process that holds it, or `nvidia-smi -c DEFAULT`",
        )
    if device.free_bytes is None or device.total_bytes is None:
        return _line(
            name,
            "warning",
            f"{device.name}{capability}{notes}",
            "name the GPU to plan for with --gpu NAME or --gpu custom:MIB:SM",
        )
    return _line(
        name,
        "ok",
        f"{device.name}{capability}, {_mib(device.free_bytes)} of {_mib(device.total_bytes)} free, "
        f"plans start from {_mib(plannable_bytes(device))}{notes}",
        "end processes that hold its memory, if a plan does not fit",
    )


def _container(question: DoctorQuestion) -> Iterator[DoctorLine]:
    facts = question.host.container
    name = "containers"
    status: Status = "warning" if question.computes_on_gpu else "ok"
    if facts.inside:
        yield _line(name, "ok", "this is one", "nothing to do")
    elif facts.runtime is None:
        yield _line(name, status, "neither docker nor podman", "install docker or podman")
    elif not facts.answers:
        found = f"{facts.runtime}, which does not answer"
        yield _line(name, status, found, "start its daemon, and let this user talk to it")
    elif facts.toolkit is None:
        found = f"{facts.runtime}, without the NVIDIA Container Toolkit"
        yield _line(
            name, status, found, "install nvidia-container-toolkit to use GPUs in containers"
        )
    else:
        found = f"{facts.runtime}, NVIDIA Container Toolkit {facts.toolkit}"
        yield _line(name, "ok", found, "nothing to do")


def _storage(question: DoctorQuestion) -> Iterator[DoctorLine]:
    disk = question.host.disk
    yield _line(
        "workspace",
        "ok" if disk.writable else "missing",
        f"{disk.path} {'can' if disk.writable else 'cannot'} be written",
        "name a folder that this user may write with --workspace DIR",
    )
    yield _amount(
        "disk",
        disk.free_bytes,
        usual=USUAL_DISK.get(question.runtime, GIB),
        least=LEAST_DISK,
        remedy="free some space, or name another disk with --workspace DIR",
    )
    yield _amount(
        "host memory",
        question.host.memory.available_bytes,
        usual=USUAL_HOST_MEMORY,
        least=0,
        remedy="end other programs: weights are read through this memory",
    )
    yield _amount(
        "shared memory",
        question.host.shared_memory_bytes,
        usual=USUAL_SHARED_MEMORY,
        least=64 * KIB,
        remedy="start the container with --ipc=host or --shm-size=8g, or enlarge /dev/shm",
    )


def _amount(name: str, size: int | None, *, usual: int, least: int, remedy: str) -> DoctorLine:
    if size is None:
        return _line(name, "warning", "not known", remedy)
    status: Status = "missing" if size < least else "warning" if size < usual else "ok"
    wanted = "" if status == "ok" else f", {_mib(usual)} are usual"
    return _line(name, status, f"{_mib(size)}{wanted}", remedy)


def _mib(size: int) -> str:
    """Return a size as nvidia-smi and the table of GPUs tell it; the record has the bytes."""
    return f"{size // MIB:,} MiB"


def _limits(question: DoctorQuestion) -> Iterator[DoctorLine]:
    limits = question.host.limits
    yield _limit("open files", limits.open_files, USUAL_OPEN_FILES, "nofile=65536")
    if question.computes_on_gpu:
        yield _limit("locked memory", limits.locked_bytes, None, "memlock=-1")
        yield _limit("stack", limits.stack_bytes, USUAL_STACK, "stack=67108864")


def _limit(name: str, value: int | None, usual: int | None, flag: str) -> DoctorLine:
    enough = value is None or (usual is not None and value >= usual)
    found = "unlimited" if value is None else f"{value:,}"
    wanted = "" if enough else f", {'unlimited' if usual is None else f'{usual:,}'} is usual"
    remedy = f"raise it with ulimit, or start the container with --ulimit {flag}"
    return _line(name, "ok" if enough else "warning", f"{found}{wanted}", remedy)
