"""``specdeploy calibrate`` as its user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from checkpoint_files import config_of, facts_of, write_config

from specdeploy.cli import run
from specdeploy.core.speed import Calibration
from specdeploy.schemas import json_schema

HEAD = "model_path,system,precision,tp_size,isl,osl,batch_size,silicon_ttft_ms,silicon_tpot_ms\n"
# Llama-3.1-8B in bf16 on one H100, half as fast again slower than predicted.
POINTS = [(4, 11.0), (8, 11.5), (16, 12.6), (32, 14.8), (64, 19.5), (96, 24.0), (128, 28.7)]


@pytest.fixture
def measured(tmp_path: Path) -> list[str]:
    """Return the arguments for a file of slow points and the checkpoint that they are of."""
    checkpoint = write_config(tmp_path / "llama", config_of(facts_of("meta-llama/Llama-3.1-8B")))
    rows = [f"ours,h100_sxm,,1,1024,512,{batch},200,{tpot}\n" for batch, tpot in POINTS]
    file = tmp_path / "measured.csv"
    file.write_text(HEAD + "".join(rows))
    return [str(file), "--model", f"ours={checkpoint}", "-o", str(tmp_path / "c.json")]


def test_json_is_what_was_written_and_follows_its_schema(
    measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", *measured, "--json"]) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    jsonschema.validate(printed, json_schema("calibration"))
    assert printed == json.loads((tmp_path / "c.json").read_text())
    found = Calibration.model_validate(printed)
    assert found.points == len(POINTS)
    assert found.after.tpot < found.before.tpot


def test_people_see_the_error_before_and_after_and_what_moved(
    measured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", *measured]) == 0
    shown = capsys.readouterr().out
    assert "time per token" in shown
    assert "on points left out" in shown
    assert "launch floor of a layer" in shown


def test_quiet_prints_nothing(measured: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", *measured, "-q"]) == 0
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_nothing_that_moved_is_said_so(
    measured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(measured[0])
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]).replace(",200,", ",,"))
    assert run(["calibrate", *measured]) == 0
    captured = capsys.readouterr()
    assert "too few" in captured.err
    assert "not measured" in captured.out
    assert "constants" not in captured.out


@pytest.mark.parametrize("word", ["ours", "ours=", "=path"])
def test_a_model_is_given_as_name_and_path(
    measured: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", measured[0], "--model", word]) == 2
    assert "NAME=PATH" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", str(tmp_path / "none.csv")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_no_file_is_a_usage_error() -> None:
    assert run(["calibrate"]) == 2
