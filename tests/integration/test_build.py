"""``specdeploy build`` and ``verify`` as a user runs them."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from built_pairs import engines, finish, run, run_json, start, write_pair

from specdeploy.schemas import json_schema

# The target alone: half the work, where a test is not about the pair.
ALONE = ("--method", "ngram")


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    folder = tmp_path / "a pair's ☃ folder"
    folder.mkdir()
    return write_pair(folder)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair that is built once; tests of this module do not change it."""
    folder = write_pair(tmp_path_factory.mktemp("built"))
    run_json(folder, "build")
    return folder


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_pair_is_built_and_verified_in_a_folder_with_an_awkward_name(pair: Path) -> None:
    report = run_json(pair, "build")
    jsonschema.validate(report, json_schema("build-report"))
    assert [step["action"] for step in report["steps"]] == ["build", "build"]
    assert report["repository"]["action"] == "render"
    assert [e.name for e in engines(pair)] in (["target", "draft"], ["draft", "target"])
    verified = run_json(pair, "verify", ".specdeploy")
    jsonschema.validate(verified, json_schema("verify-report"))
    assert verified["verdict"] == "whole"
    assert [check["kind"] for check in verified["artifacts"]].count("engine") == 2


def test_records_are_valid_against_their_schemas(built: Path) -> None:
    for engine in engines(built):
        manifest = json.loads((engine / "manifest.json").read_text())
        jsonschema.validate(manifest, json_schema("manifest"))
    record = json.loads((built / ".specdeploy/repository/repository.json").read_text())
    jsonschema.validate(record, json_schema("repository"))


def test_a_dry_run_writes_nothing_and_prints_commands_that_can_be_pasted(pair: Path) -> None:
    before = files_below(pair)
    status, out, _ = run(pair, "build", "--dry-run")
    assert status == 0
    assert files_below(pair) == before
    assert not (pair / ".specdeploy").exists()
    (first, _) = re.findall(r"^  command  (.*)$", out, re.MULTILINE)
    words = shlex.split(first)
    assert words[words.index("--checkpoint-dir") + 1] == str(pair / "models/the target's")
    subprocess.run(["/bin/sh", "-c", first], check=True, cwd=pair, capture_output=True)
    output = Path(words[words.index("--output-dir") + 1])
    assert (output / "model.safetensors.index.json").exists()
    for line in ("input    ", "output   ", "file     speculative/config.pbtxt"):
        assert f"\n  {line}" in out


def test_a_dry_run_as_json_is_the_plan(pair: Path) -> None:
    report = run_json(pair, "build", "--dry-run")
    jsonschema.validate(report, json_schema("build-report"))
    assert report["performed"] is False
    assert [step["role"] for step in report["steps"]] == ["target", "draft"]
    assert all(step["reasons"] for step in report["steps"])
    assert not (pair / ".specdeploy").exists()


def test_explain_names_what_a_flag_would_make_stale(built: Path) -> None:
    status, out, _ = run(built, "build", "--explain", "--precision", "fp32")
    assert status == 0
    assert "target: stale\n  settings.dtype: bf16 -> fp32" in out
    status, out, _ = run(built, "build", "--explain")
    assert out == "target: up to date\ndraft: up to date\nrepository: up to date\n"


def test_a_second_build_reuses_everything(built: Path) -> None:
    report = run_json(built, "build")
    assert [step["action"] for step in report["steps"]] == ["reuse", "reuse"]
    assert report["repository"]["action"] == "reuse"


def test_values_written_auto_come_from_the_tuning_file(pair: Path) -> None:
    config = (pair / "specdeploy.yaml").read_text()
    (pair / "specdeploy.yaml").write_text(config.replace("draft_length: 4", "draft_length: auto"))
    tuning = {"schema_version": 1, "choice": {"draft_length": 7}}
    (pair / "mailed.json").write_text(json.dumps(tuning))
    report = run_json(pair, "build", "--only", "engines", "--tuning", "mailed.json", "--dry-run")
    assert report["repository"] is None
    run_json(pair, "build", *ALONE, "--tuning", "mailed.json")
    record = json.loads((pair / ".specdeploy/repository/repository.json").read_text())
    assert record["draft_length"] == 7
    assert record["tuning_digest"]


def test_quiet_prints_nothing_and_progress_goes_to_stderr(built: Path) -> None:
    assert run(built, "build", "-q") == (0, "", "")
    status, out, err = run(built, "build", "-v")
    assert status == 0
    assert out.startswith("target ")
    assert "reused" in err


def test_an_incompatible_pair_exits_3_and_writes_nothing(pair: Path) -> None:
    file = pair / "models/draft/tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    file.write_text(json.dumps(tokenizer))
    before = files_below(pair)
    status, out, err = run(pair, "build", "-q")
    assert (status, out) == (3, "")
    assert err.startswith("error: tokenizer-ids-differ: ")
    assert "error: the pair is incompatible" in err
    assert "warning:" not in err
    assert files_below(pair) == before


def test_a_failing_command_exits_6_with_its_last_lines_and_leaves_nothing(pair: Path) -> None:
    tensors = pair / "models/draft/model.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-5])
    status, out, err = run(pair, "build", "--only", "engines", "--json")
    assert out == ""
    assert status in {2, 6}
    assert "Traceback" not in err
    assert not [e for e in engines(pair) if e.name == "draft"]


def test_a_quantized_checkpoint_is_refused_without_an_artifact(pair: Path) -> None:
    config = pair / "models/draft/config.json"
    plain = json.loads(config.read_text())
    quantized = {"quant_method": "gptq", "bits": 4, "group_size": 16}
    config.write_text(json.dumps({**plain, "quantization_config": quantized}))
    status, _, err = run(pair, "build")
    assert status == 3
    assert "gptq" in err
    assert not (pair / ".specdeploy").exists()


def test_the_disk_is_full_for_the_converter(pair: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    status, _, err = run(pair, "build", limits=limit)
    assert status == 6
    assert "File too large" in err or "Killed" in err or "signal" in err
    assert engines(pair) == []
    assert run_json(pair, "build", *ALONE)["performed"]
    assert run_json(pair, "verify", ".specdeploy")["verdict"] == "whole"


def test_the_disk_is_full_for_the_build_itself(pair: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    run_json(pair, "build", *ALONE, "--only", "engines")
    status, out, err = run(pair, "build", *ALONE, limits=limit)
    assert (status, out) == (2, "")
    assert "cannot write" in err
    assert "File too large" in err
    assert not (pair / ".specdeploy/repository").exists()
    assert run_json(pair, "build", *ALONE)["repository"]["action"] == "render"


@pytest.mark.parametrize("part", ["workspace", "build.lock", "logs", "engines", "repository"])
def test_what_cannot_be_written_exits_2_and_names_the_place(pair: Path, part: str) -> None:
    """A file where a folder belongs (or the reverse) stops root as well."""
    workspace = pair / ".specdeploy"
    if part == "workspace":
        workspace.write_text("")
    else:
        workspace.mkdir()
        blocked = workspace / part
        blocked.mkdir() if part in {"build.lock", "repository"} else blocked.write_text("")
    status, out, err = run(pair, "build", *ALONE)
    assert (status, out) == (2, "")
    assert str(workspace) in err
    assert "hint: " in err
    assert "Traceback" not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_workspace_exits_2(pair: Path) -> None:
    (pair / ".specdeploy").mkdir(mode=0o500)
    status, _, err = run(pair, "build")
    assert status == 2
    assert "Permission denied" in err


def test_two_builds_at_once_both_succeed_with_one_set_of_artifacts(pair: Path) -> None:
    both = [start(pair, "build", "--json") for _ in range(2)]
    reports = [json.loads(out) for status, out, _ in map(finish, both) if status == 0]
    assert len(reports) == 2
    done = sorted(step["action"] for report in reports for step in report["steps"])
    assert done == ["build", "build", "reuse", "reuse"]
    assert len(engines(pair)) == 2
    assert run_json(pair, "verify", ".specdeploy")["verdict"] == "whole"


def test_an_interrupt_exits_130_and_leaves_nothing_unfinished(pair: Path) -> None:
    build = start(pair, "build", "-vv")
    assert build.stderr is not None
    while not build.stderr.readline().startswith("running "):
        assert build.poll() is None
    build.send_signal(signal.SIGINT)
    status, out, err = finish(build)
    assert (status, out) == (130, "")
    assert "error: interrupted" in err
    assert not list((pair / ".specdeploy/engines").rglob("*staging*"))
    assert run_json(pair, "build", *ALONE)["performed"]


def test_a_name_that_is_not_text_is_refused(pair: Path) -> None:
    awkward = os.fsdecode(b"models/\xff")
    (pair / "models/draft").rename(pair / awkward)
    status, out, err = run(pair, "build", "--draft", awkward)
    assert (status, out) == (2, "")
    assert "Traceback" not in err


def test_without_torch_the_build_exits_5_before_any_work(pair: Path) -> None:
    script = (
        "import sys; from specdeploy.adapters import tools; from specdeploy.cli import run\n"
        "def absent(name): raise tools.PackageNotFoundError(name)\n"
        "tools.version = absent\n"
        "sys.exit(run(['build']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=pair, capture_output=True, text=True, check=False
    )
    assert result.returncode == 5
    assert "pip install 'specdeploy[reference]'" in result.stderr
    assert not (pair / ".specdeploy").exists()


def test_verify_exits_7_and_names_what_differs(pair: Path) -> None:
    run_json(pair, "build", *ALONE)
    target = next(e for e in engines(pair) if e.name == "target")
    (target / "tokenizer.json").unlink()
    status, out, err = run(pair, "verify", ".specdeploy", "--json")
    assert status == 7
    report = json.loads(out)
    assert report["verdict"] == "different"
    (check,) = [c for c in report["artifacts"] if c["path"] == str(target)]
    assert [d["path"] for d in check["differences"]] == ["tokenizer.json"]
    assert str(target) in err


def test_verify_tells_which_paths_are_gone(pair: Path) -> None:
    run_json(pair, "build", *ALONE)
    target = next(e for e in engines(pair) if e.name == "target")
    target.rename(pair / "elsewhere")
    status, out, _ = run(pair, "verify", ".specdeploy/repository")
    assert status == 7
    assert f"path-gone   {target}" in out


def test_verify_of_a_missing_path_exits_7(tmp_path: Path) -> None:
    status, out, err = run(tmp_path, "verify", "nowhere", "--json")
    assert (status, out) == (7, "")
    assert "does not exist" in err
