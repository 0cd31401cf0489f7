"""``specdeploy build --runtime engine`` against stand-ins of TensorRT-LLM's tools.

The stand-ins take exactly the options of a release's profile and write its layout of files; no
real engine is built here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from trtllm_tools import TrtllmTools, install

from specdeploy import cli
from specdeploy.schemas import json_schema

VERSIONS = ("0.16.0", "0.19.0", "1.2.1")
STEPS = ["convert-target", "build-target", "convert-draft", "build-draft"]

Build = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def tools(tmp_path: Path) -> TrtllmTools:
    return install(tmp_path / "tools", "1.2.1")


@pytest.fixture
def build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Build:
    """Return what builds a pair with the tools: exit code, document, what was told."""
    folder = tmp_path / "pair"

    def run(
        tools: TrtllmTools, *words: str, method: str = "draft_target"
    ) -> tuple[int, dict[str, Any], str]:
        if not folder.exists():
            tools.write_pair(folder, method=method)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PATH", tools.environment["PATH"])
        monkeypatch.syspath_prepend(str(tools.site))
        status = cli.run(["build", "--json", *words])
        told = capsys.readouterr()
        return status, json.loads(told.out) if told.out else {}, told.err

    return run


def logs(folder: Path) -> list[str]:
    """Return what was run, in order."""
    return [path.stem.partition("-")[2] for path in sorted(folder.glob(".specdeploy/logs/*.log"))]


def artifacts(folder: Path) -> list[Path]:
    return sorted(folder.glob(".specdeploy/engines/*/[a-z]*"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pair_is_built_by_the_tools_of_its_release(
    tmp_path: Path, build: Build, version: str
) -> None:
    status, report, _ = build(install(tmp_path / "tools", version))
    assert status == 0
    jsonschema.validate(report, json_schema("build-report"))
    assert [step["log_name"] for step in report["steps"]] == STEPS == logs(tmp_path / "pair")
    target = Path(report["steps"][1]["output"])
    assert {path.name for path in target.iterdir()} == {
        *("config.json", "manifest.json", "rank0.engine", "rank1.engine")
    }
    config = json.loads((target / "config.json").read_text())
    assert config["version"] == version
    assert config["build_config"]["speculative_decoding_mode"] == 2
    repository = tmp_path / "pair/.specdeploy/repository"
    leaf = (repository / "tensorrt_llm/config.pbtxt").read_text()
    assert f'key: "gpt_model_path" value: {{ string_value: "{target}" }}' in leaf
    assert cli.run(["verify", ".specdeploy"]) == 0


def test_a_second_build_runs_no_tool(tmp_path: Path, build: Build, tools: TrtllmTools) -> None:
    build(tools)
    status, report, _ = build(tools)
    assert status == 0
    assert {step["action"] for step in report["steps"]} == {"reuse"}
    assert logs(tmp_path / "pair") == STEPS


def test_a_longer_draft_converts_nothing_again_and_says_why_it_builds(
    tmp_path: Path, build: Build, tools: TrtllmTools
) -> None:
    build(tools)
    _, planned, _ = build(tools, "--draft-length", "5", "--explain")
    reasons = {s["log_name"]: [r["what"] for r in s["reasons"]] for s in planned["steps"]}
    assert reasons == {name: ["command"] if name == "build-target" else [] for name in STEPS}
    assert build(tools, "--draft-length", "5")[0] == 0
    assert logs(tmp_path / "pair") == [*STEPS, "build-target"]


def test_a_conversion_is_explained_by_the_conversion_before_it(
    build: Build, tools: TrtllmTools
) -> None:
    build(tools, method="ngram")
    _, planned, _ = build(tools, "--precision", "fp16", "--explain")
    told = [[reason["what"] for reason in step["reasons"]] for step in planned["steps"]]
    assert told == [["settings.precision", "command"], ["settings.checkpoint"]]


def test_a_dry_run_needs_no_tools_and_shows_what_the_builder_changes(
    tmp_path: Path, build: Build, monkeypatch: pytest.MonkeyPatch, tools: TrtllmTools
) -> None:
    _, report, _ = build(tools, "--dry-run")
    assert [step["log_name"] for step in report["steps"]] == STEPS
    assert report["steps"][1]["changes"][0]["becomes"] == 516
    assert not (tmp_path / "pair/.specdeploy").exists()
    for step in report["steps"]:
        assert not any("{" in word for word in step["command"])
    # The same plan without TensorRT-LLM on the machine; only its build is refused.
    (tools.site / "tensorrt_llm-1.2.1.dist-info/METADATA").unlink()
    monkeypatch.setattr("specdeploy.wiring.installed_trtllm", lambda: None)
    assert build(tools, "--dry-run")[1] == report
    status, _, told = build(tools)
    assert status == 5
    assert "TensorRT-LLM 1.2.1 is not installed here" in told


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("gpu-memory", ("the GPU ran out of memory", "lower limits.max_batch_size")),
        ("architecture", ("architecture is not supported", "hardware.gpu")),
        ("space", ("the disk is full", "the step needs about")),
        ("version", ("not of the planned version", "runtime.trtllm_version")),
        ("library", ("a library is missing", "container")),
        ("die", ("killed, most likely because the host ran out of memory", "more memory")),
        ("unknown", ("nobody has seen before", "the full output is in")),
    ],
)
def test_a_failed_build_is_told_in_one_sentence_with_a_remedy(
    tmp_path: Path, build: Build, tools: TrtllmTools, how: str, words: tuple[str, str]
) -> None:
    tools.trouble("trtllm-build", how)
    status, _, told = build(tools, method="ngram")
    error, _, hint = told.partition("error: ")[2].partition("\nhint: ")
    assert status == 6
    assert words[0] in error
    assert words[1] in hint
    assert ("\n" in error) == (how == "unknown")
    (checkpoint,) = artifacts(tmp_path / "pair")
    assert (checkpoint / "rank0.safetensors").exists()


def test_what_was_finished_before_a_failure_is_kept(
    tmp_path: Path, build: Build, tools: TrtllmTools
) -> None:
    tools.trouble("trtllm-build", "die", where="draft")
    assert build(tools)[0] == 6
    tools.behave()
    status, report, _ = build(tools)
    assert status == 0
    assert [step["action"] for step in report["steps"]] == ["reuse", "reuse", "reuse", "build"]
    assert logs(tmp_path / "pair") == [*STEPS, "build-draft"]


def test_a_build_killed_in_a_step_goes_on_where_it_was(
    tmp_path: Path, build: Build, tools: TrtllmTools
) -> None:
    tools.trouble("trtllm-build", "hang")
    folder = tools.write_pair(tmp_path / "pair", method="ngram")
    process = subprocess.Popen(
        [sys.executable, "-m", "specdeploy", "build"],
        cwd=folder,
        env={**os.environ, **tools.environment},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob(".specdeploy/engines/*/.target*/rank0.engine")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    tools.behave()
    status, report, _ = build(tools)
    assert status == 0
    assert [step["action"] for step in report["steps"]] == ["reuse", "build"]
    assert len(artifacts(folder)) == 2


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("other-engine", "build_config.max_draft_len is 0, planned was 4"),
        ("rank-missing", "wrote no rank0.engine"),
    ],
)
def test_an_engine_that_is_not_as_planned_is_no_artifact(
    tmp_path: Path, build: Build, tools: TrtllmTools, how: str, message: str
) -> None:
    tools.trouble("trtllm-build", how)
    status, _, told = build(tools, method="ngram")
    assert status == 7
    assert message in told
    assert len(artifacts(tmp_path / "pair")) == 1


def test_tools_of_another_version_are_refused_before_anything_runs(
    tmp_path: Path, build: Build, tools: TrtllmTools
) -> None:
    tools.write_pair(tmp_path / "pair")
    status, _, told = build(install(tmp_path / "others", "1.0.0"))
    assert status == 2
    assert "runtime.trtllm_version is 1.2.1 and the tools of this machine have" in told
    assert not (tmp_path / "pair/.specdeploy").exists()


def test_an_option_that_the_tool_does_not_know_is_told_as_another_version(
    tmp_path: Path, build: Build, tools: TrtllmTools
) -> None:
    known = json.loads((tools.folder / "tools.json").read_text())
    del known["options"]["trtllm-build"]["max_num_tokens"]
    (tools.folder / "tools.json").write_text(json.dumps(known))
    status, _, told = build(tools, method="ngram")
    assert status == 6
    assert "the tools are not of the planned version" in told
    assert "unrecognized arguments: --max_num_tokens" in next(
        tmp_path.glob("pair/.specdeploy/logs/*-build-target.log")
    ).read_text().replace("\n", " ")


def test_a_build_that_the_disk_has_no_room_for_is_refused(
    tmp_path: Path, build: Build, tools: TrtllmTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdeploy.adapters.workspace.Workspace.free_bytes", lambda _: 40_000)
    status, _, told = build(tools)
    assert status == 2
    assert "39.06 KiB are free" in told
    assert logs(tmp_path / "pair") == []
