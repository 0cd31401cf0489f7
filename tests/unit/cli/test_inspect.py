"""``specdeploy inspect`` as its user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from checkpoint_files import (
    config_of,
    facts_of,
    llama_shapes,
    write_config,
    write_json,
    write_safetensors,
)

from specdeploy.cli import run
from specdeploy.core.inspection import Inspection
from specdeploy.errors import ConfigError
from specdeploy.schemas import json_schema

INTEGERS = (
    "parameters",
    "active_parameters",
    "mtp_parameters",
    "weight_bytes_stored",
    "weight_bytes",
    "kv_bytes_per_token",
    "kv_bytes_per_token_full",
    "context_length",
)


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["inspect", *arguments, "--json"]) == 0
    captured = capsys.readouterr()
    found: dict[str, object] = json.loads(captured.out)
    return found


def test_json_holds_whole_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_safetensors(write_config(tmp_path) / "model.safetensors", llama_shapes())
    found = inspected(capsys, str(tmp_path))
    assert {key: type(found[key]) for key in INTEGERS} == dict.fromkeys(INTEGERS, int)


def test_json_follows_its_schema_and_reads_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = inspected(capsys, str(write_config(tmp_path)))
    jsonschema.validate(found, json_schema("inspection"))
    assert Inspection.model_validate(found).parameters == found["parameters"]


def test_what_is_not_known_is_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspected(capsys, str(write_config(tmp_path)))
    assert found["weight_bytes_stored"] is None
    vocabulary = found["vocabulary"]
    assert isinstance(vocabulary, dict)
    assert vocabulary["tokenizer_size"] is None


def test_tp_and_kv_type_change_the_cache_of_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path, config_of(facts_of("meta-llama/Llama-3.1-70B")))
    found = inspected(capsys, str(tmp_path), "--tp", "4", "--kv-dtype", "FP8")
    assert (found["tp"], found["kv_dtype"], found["kv_bytes_per_token"]) == (4, "fp8", 40_960)


def test_a_tp_that_does_not_fit_the_kv_heads_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path, config_of(facts_of("HuggingFaceTB/SmolLM2-135M")))
    assert run(["inspect", str(tmp_path), "--tp", "2"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3 KV heads cannot be spread over tp 2" in captured.err


@pytest.mark.parametrize("arguments", [["--tp", "0"], ["--tp", "x"], ["--kv-dtype", "fp5"]])
def test_a_wrong_flag_exits_2(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(write_config(tmp_path)), *arguments]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("path", ["", "./gone", "~nobody-at-all/x", "a/b/c", "x" * 5000, "\u2028"])
def test_a_path_that_leads_nowhere_exits_2(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", path]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err


def test_a_hub_id_is_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Hub:
        def resolve(self, repo_id: str) -> Path:
            assert repo_id == "org/name"
            return write_config(tmp_path)

    monkeypatch.setattr("specdeploy.wiring.hub_resolver", Hub)
    assert inspected(capsys, "org/name")["path"] == str(tmp_path)


def test_the_table_shows_the_sizes_on_stdout_and_notes_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path, config_of(facts_of("openai/gpt-oss-20b")))
    assert run(["inspect", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    for text in ("GptOssForCausalLM", "20,914,757,184", "49,152", "24,576", "mxfp4"):
        assert text in captured.out
    assert "note: " not in captured.out
    assert "note: config.json names no dtype" in captured.err


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("deepseek-ai/DeepSeek-V3", ["37,552,297,472", "11,610,068,224", "fp8, 8 bits"]),
        ("EAGLE3 head for Llama-3.1-8B", ["eagle3, 32,000 draft tokens", "target of hidden"]),
        ("Qwen/Qwen2.5-7B", ["57,344 in bf16", "no tokenizer file"]),
    ],
)
def test_the_table_shows_what_a_model_has_beyond_the_usual(
    name: str, texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path, config_of(facts_of(name)))
    assert run(["inspect", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert [text for text in texts if text not in out] == []


def test_the_table_tells_gpus_tokenizer_and_end_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path)
    write_json(tmp_path / "generation_config.json", {"eos_token_id": [2, 3]})
    tokenizer = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1}]}
    write_json(tmp_path / "tokenizer.json", tokenizer)
    assert run(["inspect", str(tmp_path), "--tp", "2"]) == 0
    out = capsys.readouterr().out
    for text in ("on each of 2 GPUs", "tokenizer 2 = 1 + 1 added", "generation eos [2, 3]"):
        assert text in out


def test_quiet_prints_nothing_but_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(write_config(tmp_path, torch_dtype=None)), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_hub_id_that_cannot_be_had_says_both_places(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Hub:
        def resolve(self, repo_id: str) -> Path:
            raise ConfigError(f"no {repo_id}", hint="hf download")

    monkeypatch.setattr("specdeploy.wiring.hub_resolver", Hub)
    assert run(["inspect", "org/name"]) == 2
    err = capsys.readouterr().err
    assert "org/name does not exist here, and as a Hub id: no org/name" in err
    assert "hint: hf download" in err


def test_words_of_a_checkpoint_are_no_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path / "[red]x", quantization_config={"quant_method": "[b]q"})
    assert run(["inspect", str(tmp_path / "[red]x")]) == 0
    out = capsys.readouterr().out
    assert "[b]q" in out
    assert "[red]x" in out


def test_words_that_would_steer_a_terminal_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(write_config(tmp_path, model_type="\x1b[2Jllama"))]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_directory_name_that_is_not_utf_8_is_shown_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_config(tmp_path / "na\udcffme")
    assert inspected(capsys, str(folder))["name"] == "na?me"


HEAVY = "torch transformers tritonclient grpc plotly safetensors tokenizers huggingface_hub numpy"
PROBE = f"""
import sys
from specdeploy.cli import run
assert run(["inspect", sys.argv[1], "--json"]) == 0
print(sorted({{name.split(".")[0] for name in sys.modules}} & set("{HEAVY}".split())))
"""


def test_inspect_imports_no_heavy_library(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(write_config(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_ends_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example:\n    specdeploy inspect" in out
