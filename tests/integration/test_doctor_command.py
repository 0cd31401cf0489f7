"""``specdeploy doctor`` as its user meets it, with a scripted libnvidia-ml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from nvml_stand_in.library import (
    NOT_SUPPORTED,
    ScriptedMachine,
    a_gpu,
    a_machine,
    loaded_library,
    memory,
)

from specdeploy import wiring
from specdeploy.cli import run
from specdeploy.core.doctor import DoctorReport
from specdeploy.schemas import json_schema
from specdeploy.units import GIB
from specdeploy.workflows.doctor import DoctorTools


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedMachine]:
    """A scripted machine whose GPUs the command sees, in a folder without a settings file."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    scripted = ScriptedMachine(tmp_path, monkeypatch)
    tools = wiring.doctor_tools()
    with loaded_library():
        probe = scripted.prober(a_machine())
        looking = DoctorTools(devices=probe, host=tools.host, versions=tools.versions)
        monkeypatch.setattr(wiring, "doctor_tools", lambda: looking)
        yield scripted


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, DoctorReport, str]:
    status = run(["doctor", *words, "--json"])
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    jsonschema.validate(document, json_schema("doctor-report"))
    return status, DoctorReport.model_validate(document), captured.err


def status_of(report: DoctorReport, name: str) -> str:
    [found] = [line.status for line in report.lines if line.name == name]
    return found


def test_before_there_is_a_file_the_machine_can_be_looked_at(
    machine: ScriptedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.prober(a_machine(a_gpu(memory=memory(24 * GIB, free=21 * GIB), compute=f"5:{GIB}")))
    status, report, errors = told(capsys)
    assert (status, errors, report.runtime) == (0, "", "reference")
    assert [gpu.bytes for gpu in report.planning] == [21 * GIB]
    assert [process.pid for process in report.machine.devices[0].processes] == [5]


def test_a_missing_gpu_exits_5_and_says_what_to_do(
    machine: ScriptedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.prober(a_machine(a_gpu(), init=18))
    status, report, errors = told(capsys, "--runtime", "engine")
    assert (status, status_of(report, "GPU")) == (5, "missing")
    assert "GPU: restart the machine" in errors
    assert "--gpu NAME" in errors


def test_with_a_named_gpu_planning_goes_on_and_says_so(
    machine: ScriptedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.prober(a_machine(init=12))
    _, report, errors = told(capsys, "--runtime", "llmapi", "--gpu", "custom:81559:9.0")
    assert status_of(report, "GPU") == "warning"
    assert [(gpu.sm, gpu.bytes) for gpu in report.planning] == [(90, 81_559 * 1024**2)]
    assert report.planning[0].source.startswith("named, not measured; the NVIDIA driver's library")
    assert "GPU:" not in errors


def test_a_gb10_is_told_with_the_systems_memory(
    machine: ScriptedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.prober(
        a_machine(a_gpu(name="NVIDIA GB10", memory=NOT_SUPPORTED)),
        meminfo="MemTotal: 127600748 kB\nMemAvailable: 118566368 kB\n",
    )
    _, report, _ = told(capsys)
    [device] = report.machine.devices
    assert (device.total_bytes, device.free_bytes) == (130_663_165_952, 121_411_960_832)
    assert report.planning[0].bytes == 108_345_644_237


def test_an_unknown_gpu_exits_2(
    machine: ScriptedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    del machine
    assert run(["doctor", "--gpu", "h900"]) == 2
    assert "unknown GPU" in capsys.readouterr().err


def test_a_person_reads_remedies_beside_what_is_wrong(
    machine: ScriptedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.prober(a_machine(init=9))
    assert run(["doctor", "--runtime", "engine"]) == 5
    printed = capsys.readouterr().out
    assert "missing  GPU            the NVIDIA driver is installed and not loaded\n" in printed
    assert "-> load it with `modprobe nvidia`" in printed
    assert "engine runtime: something needed is missing" in printed


def test_v_tells_the_remedy_of_everything_and_q_nothing(
    machine: ScriptedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.prober(a_machine(a_gpu()))
    assert run(["doctor", "-v"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("->") == len(printed.split("\n\n")[0].splitlines()) / 2
    assert run(["doctor", "-q"]) == 0
    assert capsys.readouterr().out == ""


def test_the_settings_file_names_runtime_and_workspace(
    machine: ScriptedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.prober(a_machine(a_gpu()))
    Path("specdeploy.yaml").write_text("target: {path: t}\nruntime: {name: llmapi}\nworkspace: w\n")
    _, report, _ = told(capsys)
    assert (report.runtime, report.host.disk.path) == ("llmapi", str(Path("w").absolute()))
