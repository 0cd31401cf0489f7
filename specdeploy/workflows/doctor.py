"""See whether this machine has what a runtime needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdeploy.core.doctor import DoctorQuestion, DoctorReport, examine
from specdeploy.core.hardware import find_gpu
from specdeploy.core.host import Lookup
from specdeploy.errors import MissingToolError
from specdeploy.workflows.device_ports import DeviceProbe, HostReader
from specdeploy.workflows.ports import ToolVersions


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """The runtime to judge for, where its workspace would lie, and the GPU to plan for."""

    runtime: str
    workspace: Path
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class DoctorTools:
    """What looks at the machine."""

    devices: DeviceProbe
    host: HostReader
    versions: ToolVersions


def doctor(request: DoctorRequest, tools: DoctorTools) -> DoctorReport:
    """Look at everything and judge it; what is missing is in the report.

    Raises:
        ConfigError: the named GPU is unknown.
    """
    gpu = None if request.gpu is None else find_gpu(request.gpu)
    return examine(
        DoctorQuestion(
            runtime=request.runtime,
            host=tools.host.facts(request.workspace),
            machine=tools.devices.probe(),
            build_tools=_build_tools(request.runtime, tools.versions),
            gpu=gpu,
        )
    )


def _build_tools(runtime: str, versions: ToolVersions) -> Lookup:
    try:
        found = versions.versions(runtime)
    except MissingToolError as error:
        return Lookup(error=str(error), hint=error.hint)
    told = ", ".join(f"{name} {number}" for name, number in found.items())
    return Lookup(found=told or "none needed")
