from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from configs import FakeCheckpoints, FakeHub, a_model_spec, write_config
from jsonschema import Draft202012Validator

from specdeploy import cli, wiring
from specdeploy.schemas import SCHEMAS, json_schema

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the pair's checkpoint directories."""
    (tmp_path / "t").mkdir()
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    checkpoints = FakeCheckpoints(t=a_model_spec(), d=a_model_spec(context_length=1024))
    monkeypatch.setattr(wiring, "checkpoint_reader", lambda: checkpoints)
    monkeypatch.setattr(wiring, "hub_resolver", FakeHub)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*words: str) -> tuple[int, str, str]:
        status = cli.run(list(words))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run_command


def test_config_tells_where_each_value_came_from(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(folder, "target: {path: t}\ndraft: {path: d}\nmethod: draft_target\n")
    (folder / "my.json").write_text('{"choice": {"max_batch_size": 16}}')
    monkeypatch.setenv("SPECDEPLOY_SAMPLING__TOP_K", "8")
    status, out, _ = run(
        "config", "--draft-length", "6", "--tuning", "my.json", "--set", "draft.tp=2"
    )
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in out.splitlines()}
    assert status == 0
    assert rows["method"] == ['"draft_target"', "specdeploy.yaml:3"]
    assert rows["sampling.top_k"] == ["8", "environment SPECDEPLOY_SAMPLING__TOP_K"]
    assert rows["draft_length"] == ["6", "flag --draft-length"]
    assert rows["draft.tp"] == ["2", "flag --set draft.tp"]
    assert rows["limits.max_batch_size"] == ["16", f"tuning {folder}/my.json"]
    assert rows["limits.max_seq_len"] == ["1018", "checkpoint context of the draft"]
    assert rows["objective"] == ['"latency"', "default"]


def test_config_prints_one_json_document_that_fits_its_schema(folder: Path, run: Run) -> None:
    write_config(folder, "target: {path: t}\ndraft: {path: d}\nruntime: {executor: mpi}\n")
    status, out, err = run("config", "--json")
    document = json.loads(out)
    Draft202012Validator(json_schema("effective-settings")).validate(document)
    assert status == 0
    assert document["unused"] == ["runtime.executor"]
    assert "note: not used by this release: runtime.executor" in err


def test_quiet_prints_nothing_but_json(folder: Path, run: Run) -> None:
    assert run("init", "--target", "t", "-q") == (0, "", "")
    write_config(folder, "target: {path: t}\nmethod: ngram\nruntime: {executor: mpi}\n")
    assert run("config", "-q") == (0, "", "")
    status, out, err = run("config", "-q", "--json")
    assert (status, json.loads(out)["unused"], err) == (0, ["runtime.executor"], "")


def test_config_shows_what_is_known_when_a_checkpoint_is_missing(folder: Path, run: Run) -> None:
    write_config(folder, "target: {path: gone}\nmethod: ngram\n")
    status, out, err = run("config", "--json")
    settings = {setting["key"]: setting["value"] for setting in json.loads(out)["settings"]}
    assert status == 0
    assert settings["limits.max_seq_len"] == "auto"
    assert "gone does not exist" in err


def test_config_takes_a_file_by_name(folder: Path, run: Run) -> None:
    write_config(folder, "target: {path: t}\nmethod: none\n", name="other.yaml")
    status, out, _ = run("config", "other.yaml", "--json")
    assert status == 0
    assert json.loads(out)["file"] == "other.yaml"


def test_a_wrong_file_ends_with_status_2_and_its_line(folder: Path, run: Run) -> None:
    write_config(folder, "target: {path: t}\nmetod: none\n")
    status, out, err = run("config")
    assert (status, out) == (2, "")
    assert err == "error: specdeploy.yaml:2: unknown key 'metod'; did you mean 'method'?\n"


def test_a_misspelt_variable_ends_with_status_2(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(folder, "target: {path: t}\nmethod: none\n")
    monkeypatch.setenv("SPECDEPLOY_METOD", "ngram")
    status, _, err = run("config")
    assert status == 2
    assert "SPECDEPLOY_METHOD" in err


def test_a_set_without_a_value_ends_with_status_2(folder: Path, run: Run) -> None:
    write_config(folder, "target: {path: t}\nmethod: none\n")
    status, _, err = run("config", "--set", "draft_length")
    assert status == 2
    assert "KEY=VALUE" in err


@pytest.mark.usefixtures("folder")
def test_no_file_at_all_says_how_to_start(run: Run) -> None:
    status, _, err = run("config")
    assert status == 2
    assert "hint: `specdeploy init" in err


def test_init_writes_a_file_that_config_reads(folder: Path, run: Run) -> None:
    status, out, _ = run("init", "--target", "t", "--draft", "d")
    assert (status, out) == (0, f"{folder}/specdeploy.yaml\n")
    assert run("config")[0] == 0


def test_init_never_replaces_a_file_unless_forced(folder: Path, run: Run) -> None:
    write_config(folder, "mine")
    status, out, err = run("init", "--target", "t", "--method", "ngram")
    assert (status, out) == (2, "")
    assert "--force" in err
    assert (folder / "specdeploy.yaml").read_text() == "mine"
    assert run("init", "--target", "t", "--method", "ngram", "--force")[0] == 0


def test_init_prints_one_json_document_that_fits_its_schema(folder: Path, run: Run) -> None:
    status, out, _ = run("init", "--target", "t", "-o", "pair.yaml", "--json")
    document = json.loads(out)
    Draft202012Validator(json_schema("started-file")).validate(document)
    assert status == 0
    assert document["file"] == f"{folder}/pair.yaml"


def test_the_printed_schema_accepts_what_init_writes(folder: Path, run: Run) -> None:
    run("init", "--target", "t", "--draft", "d")
    status, out, _ = run("schema")
    schema = json.loads(out)
    assert status == 0
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(yaml.safe_load((folder / "specdeploy.yaml").read_text()))


@pytest.mark.parametrize(
    "text",
    ["target: {path: t}\nmetod: none", "target: {pth: t}", "target: {path: t}\ndraft_length: soon"],
)
def test_the_printed_schema_refuses_what_the_reader_refuses(
    folder: Path, run: Run, text: str
) -> None:
    write_config(folder, text)
    validator = Draft202012Validator(json.loads(run("schema")[1]))
    assert not validator.is_valid(yaml.safe_load(text))
    assert run("config")[0] == 2


def test_schema_prints_any_other_by_its_name(run: Run) -> None:
    status, out, _ = run("schema", "manifest")
    assert status == 0
    assert json.loads(out)["title"] == "EngineManifest"


def test_schema_lists_its_names(run: Run) -> None:
    assert run("schema", "--list")[1].split() == list(SCHEMAS)
    assert json.loads(run("schema", "--list", "--json")[1]) == {"schemas": list(SCHEMAS)}


def test_schema_answers_an_unknown_name_with_the_nearest(run: Run) -> None:
    status, _, err = run("schema", "manifst")
    assert status == 2
    assert "did you mean 'manifest'?" in err
