"""The doctor asks each of its tools, and an absent one is an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdeploy.core.devices import HostMemory, Machine
from specdeploy.core.doctor import DoctorReport
from specdeploy.core.host import ContainerFacts, DiskFacts, HostFacts, Limits, Lookup
from specdeploy.errors import ConfigError, MissingToolError
from specdeploy.workflows.doctor import DoctorRequest, DoctorTools, doctor


class ScriptedDevices:
    def probe(self) -> Machine:
        return Machine(error="no driver")


class ScriptedHost:
    def facts(self, workspace: Path) -> HostFacts:
        return HostFacts(
            system="Linux",
            python="3.11.7",
            packages={},
            programs={},
            server=Lookup(found="/bin/tritonserver"),
            backends=["python"],
            container=ContainerFacts(inside=True),
            disk=DiskFacts(path=str(workspace), free_bytes=1 << 40, writable=True),
            shared_memory_bytes=1 << 40,
            memory=HostMemory(available_bytes=1 << 40),
            limits=Limits(open_files=None, locked_bytes=None, stack_bytes=None),
        )


class ScriptedVersions:
    def __init__(self, answer: dict[str, str] | MissingToolError) -> None:
        self._answer = answer

    def versions(self, runtime: str) -> dict[str, str]:
        if isinstance(self._answer, MissingToolError):
            raise self._answer
        return {**self._answer, "asked for": runtime}


def seen(answer: dict[str, str] | MissingToolError, *, gpu: str | None = None) -> DoctorReport:
    tools = DoctorTools(ScriptedDevices(), ScriptedHost(), ScriptedVersions(answer))
    return doctor(DoctorRequest("reference", Path("/w"), gpu), tools)


def test_versions_of_the_build_tools_are_told() -> None:
    found = [line.found for line in seen({"torch": "2.13"}).lines if line.name == "build tools"]
    assert found == ["torch 2.13, asked for reference"]


def test_a_build_tool_that_is_missing_is_in_the_report() -> None:
    report = seen(MissingToolError("no torch", hint="pip install torch"))
    assert [(line.name, line.remedy) for line in report.lines if line.status == "missing"] == [
        ("build tools", "pip install torch")
    ]


def test_the_gpu_to_plan_for_is_found_by_its_name() -> None:
    assert [gpu.name for gpu in seen({}, gpu="h100").planning] == ["h100-sxm"]
    with pytest.raises(ConfigError, match="unknown GPU"):
        seen({}, gpu="h900")


def test_the_disk_is_that_of_the_workspace() -> None:
    assert seen({}).host.disk.path == "/w"
