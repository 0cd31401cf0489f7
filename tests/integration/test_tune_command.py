"""``specdeploy tune`` as a process, from nothing but two config.json files and a GPU's name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from checkpoint_files import FACTS, config_of
from jsonschema import Draft202012Validator

from specdeploy.schemas import json_schema

PAIR = ("--target", "target", "--draft", "draft", "--gpu", "h200")


class Run(NamedTuple):
    """How a process ended."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        read: dict[str, Any] = json.loads(self.out)
        return read


def specdeploy(folder: Path, *words: str) -> Run:
    done = subprocess.run(
        [sys.executable, "-m", "specdeploy", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def tune(folder: Path, *words: str) -> Run:
    return specdeploy(folder, "tune", *PAIR, *words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two directories that hold config.json alone."""
    for role, name in (("target", "Llama-3.1-8B"), ("draft", "Llama-3.2-1B")):
        facts = next(facts for facts in FACTS if name in facts["name"])
        (tmp_path / role).mkdir()
        (tmp_path / role / "config.json").write_text(json.dumps(config_of(facts)))
    return tmp_path


def test_two_configs_and_a_gpu_name_are_enough(folder: Path) -> None:
    run = tune(folder, "--acceptance", "0.7")
    assert run.status == 0
    assert run.out.startswith("speculate: ")
    for title in ("crossover:", "what the choice depends on:", "why the rest lost:", "assumed:"):
        assert f"\n{title}\n" in run.out
    table = [line for line in run.out.splitlines() if line[:9].strip().isdigit()]
    assert len(table) == 16
    assert max(map(len, table)) <= 90
    workspace = folder / ".specdeploy"
    assert {"tuning.json", "tuning.svg", "tuning.html"} == {f.name for f in workspace.iterdir()}


def test_json_is_one_document_that_fits_its_schema_and_is_what_was_written(folder: Path) -> None:
    run = tune(folder, "--acceptance", "0.7", "--json")
    assert run.status == 0
    Draft202012Validator(json_schema("tuning-report")).validate(run.document)
    assert json.loads((folder / ".specdeploy" / "tuning.json").read_text()) == run.document


def test_no_acceptance_is_made_up(folder: Path) -> None:
    run = tune(folder, "--json")
    assert run.status == 0
    assert run.document["verdict"] == "off"
    assert "no acceptance is known" in run.document["reason"]
    assert "--acceptance A" in run.document["reason"]
    assert "if acceptance were:" in tune(folder).out


def test_the_choice_is_what_the_settings_become(folder: Path) -> None:
    chosen = tune(folder, "--acceptance", "0.7", "--json").document["choice"]
    words = ("config", "--target", "target", "--draft", "draft", "--json")
    shown = specdeploy(folder, *words).document
    settings = {setting["key"]: setting for setting in shown["settings"]}
    assert settings["draft_length"]["value"] == chosen["draft_length"] > 0
    assert settings["draft_length"]["source"]["kind"] == "tuning"
    assert settings["limits.max_batch_size"]["value"] == chosen["max_batch_size"]
    assert settings["limits.max_num_tokens"]["value"] == chosen["max_num_tokens"]
    assert settings["limits.max_seq_len"]["value"] == chosen["max_seq_len"]


def test_tuning_again_does_not_start_from_the_last_choice(folder: Path) -> None:
    first = tune(folder, "--acceptance", "0.9", "--json").document["choice"]
    second = tune(folder, "--acceptance", "0.3", "--json").document["choice"]
    third = tune(folder, "--acceptance", "0.9", "--json").document["choice"]
    assert first["draft_length"] > second["draft_length"]
    assert third == first


def test_without_a_gpu_and_without_a_name_it_exits_5_and_says_what_to_do(folder: Path) -> None:
    run = specdeploy(folder, "tune", "--target", "target", "--draft", "draft")
    if run.status == 0:
        pytest.skip("this machine has a GPU")
    assert run.status == 5
    assert "--gpu NAME" in run.err


def test_nothing_that_fits_exits_4_and_names_what_binds(folder: Path) -> None:
    run = tune(folder, "--gpu", "custom:2000:9.0")
    assert run.status == 4
    assert "error: nothing fits on 8 x custom:2000:9.0: " in run.err
    assert "hint: " in run.err
    assert run.out == ""
    assert not (folder / ".specdeploy").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--acceptance", "1.5"), "acceptance 1.5 is not between 0 and 1"),
        (("--acceptance", "missing.json"), "missing.json does not exist"),
        (("--acceptance", "preset:none"), "there is no acceptance preset 'none'"),
        (("--gpu", "h2000"), "unknown GPU 'h2000'"),
        (("--objective", "speed"), "objective is"),
        (("--tp", "3"), "cannot be spread"),
        (("--calibration", "missing.json"), "missing.json does not exist"),
        (("--also", "nowhere/at/all"), "cannot read nowhere/at/all"),
    ],
)
def test_a_wrong_word_exits_2_and_is_named(folder: Path, words: tuple[str, ...], said: str) -> None:
    run = tune(folder, *words)
    assert run.status == 2
    assert said in run.err
    assert "Traceback" not in run.err


def test_a_file_with_a_workload_and_a_price_is_tuned_for_them(folder: Path) -> None:
    (folder / "specdeploy.yaml").write_text(
        "target: {path: target}\n"
        "draft: {path: draft}\n"
        "hardware: {gpu: h100, count: 2}\n"
        "workload:\n"
        "  input_len: [500, 1500]\n"
        "  output_len: 200\n"
        "  concurrency: [4, 32]\n"
        "objective: cost\n"
        "price_per_gpu_hour: 3.0\n"
        "runtime: {shape: llmapi, trtllm_version: 1.2.1}\n"
    )
    run = specdeploy(folder, "tune", "--acceptance", "draft=0.8", "--json")
    assert run.status == 0
    report = run.document
    assert (report["objective"], report["gpu_count"]) == ("cost", 2)
    assert report["cost"]["classic"]["money"] > 0
    assert report["choice"]["concurrency"] in {4, 32}
    assert report["choice"]["max_seq_len"] == 1700
    assert "per 1000" in specdeploy(folder, "tune", "--acceptance", "draft=0.8").out


def test_quiet_says_nothing_and_still_writes(folder: Path) -> None:
    run = tune(folder, "--acceptance", "0.7", "-q")
    assert (run.status, run.out, run.err) == (0, "", "")
    assert (folder / ".specdeploy" / "tuning.json").exists()


def test_a_broken_tuning_file_of_the_workspace_is_replaced_and_told(folder: Path) -> None:
    (folder / ".specdeploy").mkdir()
    (folder / ".specdeploy" / "tuning.json").write_text("{broken")
    run = tune(folder, "--acceptance", "0.7", "--memory-limit", "0.8", "--precision", "int4-awq")
    assert run.status == 0, run.err
    assert "tuning.json is not JSON" in run.err
    assert "it is replaced" in run.err
    kept = json.loads((folder / ".specdeploy" / "tuning.json").read_text())
    assert kept["memory"]["limit"] == "0.8 of total memory"
