"""``specdeploy estimate`` as a process: one deployment, or one JSON line for each line."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_files import FACTS, config_of
from jsonschema import Draft202012Validator

from specdeploy.schemas import json_schema

Run = subprocess.CompletedProcess[str]


def estimate(folder: Path, *words: str, stdin: str | None = None) -> Run:
    return subprocess.run(
        [sys.executable, "-m", "specdeploy", "estimate", *words],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two directories that hold config.json alone."""
    folder = tmp_path_factory.mktemp("estimate")
    for role, name in (("target", "Llama-3.1-8B"), ("draft", "Llama-3.2-1B")):
        facts = next(facts for facts in FACTS if name in facts["name"])
        (folder / role).mkdir()
        (folder / role / "config.json").write_text(json.dumps(config_of(facts)))
    return folder


ONE = ("--target", "target", "--draft", "draft", "--gpu", "h100", "--draft-length", "4")


def test_json_is_one_document_that_fits_its_schema(folder: Path) -> None:
    run = estimate(folder, *ONE, "--acceptance", "0.7", "--json")
    assert run.returncode == 0
    document = json.loads(run.stdout)
    Draft202012Validator(json_schema("estimate")).validate(document)
    assert document["speedup"] > 1


def test_people_get_a_table_with_intervals_and_sources(folder: Path) -> None:
    run = estimate(folder, *ONE, "--tokens-per-step", "2.5", "--batch", "16")
    assert run.returncode == 0
    for word in ("fits: ", "TPOT ms", "speedup at this load", "most of a step: ", "assumed: "):
        assert word in run.stdout


def test_points_from_stdin_are_answered_line_by_line(folder: Path) -> None:
    lines = '{"batch": 1}\n{"bach": 2}\n{"batch": 4}\n'
    run = estimate(folder, *ONE, "--acceptance", "0.7", "--points", "-", stdin=lines)
    first, second, third = map(json.loads, run.stdout.splitlines())
    assert run.returncode == 2
    assert (second["line"], "bach" in second["error"]) == (2, True)
    assert first["baseline"]["tokens_per_s"] < third["baseline"]["tokens_per_s"]
    assert "1 lines could not be answered" in run.stderr
    good = estimate(folder, *ONE, "--points", "-", stdin='{"batch": 1}\n')
    assert good.returncode == 0


def test_what_does_not_fit_is_shown_and_exits_4(folder: Path) -> None:
    run = estimate(folder, "--target", "target", "--gpu", "custom:9000:9.0", "--json")
    assert run.returncode == 4
    assert json.loads(run.stdout)["fits"] is False
    assert "error: it does not fit: " in run.stderr
    assert "does not fit" in estimate(folder, "--target", "target", "--gpu", "t4").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "h100"), "no target is given"),
        (("--points", "missing.jsonl"), "cannot read missing.jsonl"),
        ((*ONE, "--tokens-per-step", "9"), "tokens_per_step 9 is not between"),
        ((*ONE, "--acceptance", "missing.json"), "missing.json does not exist"),
        ((*ONE, "--batch", "0"), "batch is 0"),
        ((*ONE, "--calibration", "missing.json"), "missing.json does not exist"),
    ],
)
def test_a_wrong_word_exits_2_and_is_named(folder: Path, words: tuple[str, ...], said: str) -> None:
    run = estimate(folder, *words)
    assert (run.returncode, run.stdout) == (2, "")
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_more_words_show_the_memory_of_each_gpu_line_by_line(folder: Path) -> None:
    words = (*ONE, "--tp", "2", "--draft-tp", "1", "--memory-limit", "0.8")
    run = estimate(folder, *words, "-v")
    assert run.returncode == 0
    for word in ("GPU 0\n", "GPU 1\n", "target weights", "target KV pool", "0.8 of total memory"):
        assert word in run.stdout
    assert "GPU 0\n" not in estimate(folder, *words).stdout
    assert "GPU 0, 1\n" in estimate(folder, *ONE, "--tp", "2", "-v").stdout
    short = estimate(folder, *ONE, "--memory-limit", "0.1", "-v")
    assert short.returncode == 4
    assert "missing" in short.stdout


def test_a_line_of_other_bytes_spoils_no_other(folder: Path) -> None:
    (folder / "points.jsonl").write_bytes(
        b'\xef\xbb\xbf{"batch": 1}\n\xff\n{"target": "\\ud800"}\n'
    )
    run = estimate(folder, *ONE, "--points", "points.jsonl")
    assert run.returncode == 2
    good, other, lone = map(json.loads, run.stdout.splitlines())
    assert good["fits"]
    assert other == {"error": "not UTF-8 text", "line": 2}
    assert lone["line"] == 3


def test_a_stdin_that_is_closed_and_a_full_disk_are_told_apart(folder: Path) -> None:
    (folder / "one.jsonl").write_text('{"batch": 1}\n' * 2000)
    for words, said in (
        ("--points - <&-", "cannot read standard input: it is closed"),
        ("--points one.jsonl >/dev/full", "cannot write to standard output"),
    ):
        command = shlex.join([sys.executable, "-m", "specdeploy", "estimate", *ONE])
        run = subprocess.run(
            ["/bin/sh", "-c", f"{command} {words}"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 2
        assert said in run.stderr
