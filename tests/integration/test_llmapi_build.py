"""``specdeploy build --runtime llmapi`` as a user runs it, with no GPU and no TensorRT-LLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from built_pairs import run, run_json
from llmapi_signatures import accept, signatures
from tiny_checkpoints import write_checkpoint

from specdeploy.schemas import json_schema

CONFIG = """target: {path: t, precision: bf16}
draft: {path: d}
runtime: {name: llmapi, trtllm_version: 1.2.1}
limits: {max_seq_len: 128, max_batch_size: 8}
"""
CHOICE = {"draft_length": 4, "max_batch_size": 8, "max_num_tokens": 8192, "max_seq_len": 128}


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A folder with a pair and its settings file."""
    write_checkpoint(tmp_path / "t", layers=2)
    write_checkpoint(tmp_path / "d", seed=1)
    (tmp_path / "specdeploy.yaml").write_text(CONFIG)
    return tmp_path


def planned(pair: Path, *words: str) -> dict[str, Any]:
    """Return the repository's part of a dry run."""
    report = run_json(pair, "build", "--dry-run", *words)
    jsonschema.validate(report, json_schema("build-report"))
    assert report["steps"] == []
    repository: dict[str, Any] = report["repository"]
    return repository


def settings(repository: dict[str, Any]) -> dict[str, Any]:
    return dict(yaml.safe_load(repository["settings"]["trtllm-serve.yaml"]))


@pytest.mark.parametrize("version", signatures())
def test_a_dry_run_shows_the_settings_of_the_release_and_writes_nothing(
    pair: Path, version: str
) -> None:
    repository = planned(pair, "--set", f"runtime.trtllm_version={version}")
    accept(version, settings(repository))
    assert repository["serve_command"][:2] == ["trtllm-serve", str(pair / "t")]
    assert repository["serve_command"][-1] == f"{repository['path']}/trtllm-serve.yaml"
    assert not (pair / ".specdeploy").exists()


def test_a_build_needs_no_tensorrt_llm_and_is_verified(pair: Path) -> None:
    report = run_json(pair, "build")
    repository = Path(report["repository"]["path"])
    assert (repository / "trtllm-serve.yaml").is_file()
    model = yaml.safe_load((repository / "tensorrt_llm/1/model.yaml").read_text())
    assert model["speculative_config"]["speculative_model"] == str(pair / "d")
    assert run_json(pair, "verify", ".specdeploy")["verdict"] == "whole"
    assert run_json(pair, "build")["repository"]["action"] == "reuse"


def test_what_tuning_decided_is_in_the_settings(pair: Path) -> None:
    pool = {"bytes_per_token": 10, "max_tokens_in_paged_kv_cache": 100}
    tiers = [(1, 2, 4), (3, 8, 1)]
    (pair / "tuning.json").write_text(
        json.dumps(
            {
                "choice": CHOICE,
                "schedule": {
                    "tiers": [
                        {"from_batch": a, "to_batch": b, "draft_length": k} for a, b, k in tiers
                    ]
                },
                "memory": {
                    "load_order": "draft_first",
                    "target": {**pool, "kv_cache_free_gpu_mem_fraction": 0.4},
                    "draft": None,
                },
            }
        )
    )
    found = settings(planned(pair, "--tuning", "tuning.json"))
    assert found["kv_cache_config"]["free_gpu_memory_fraction"] == 0.4
    assert found["speculative_config"]["draft_len_schedule"] == {1: 4, 3: 1}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("llmapi.pp=2", "no method speculates over pipeline stages"),
        ("runtime.trtllm_version=0.19.0", "not served by its LLM API"),
        ("runtime.trtllm_version=7.0", "not known"),
        ("llmapi.overlap_scheduler=true", "llmapi.overlap_scheduler is true, and"),
        ("limits.max_num_tokens=100", "has no room for a prompt"),
        ("target.precision=fp32", "target.precision is fp32"),
        ("llmapi.kv_fraction=1", "kv_fraction"),
    ],
)
def test_what_the_release_cannot_do_is_refused_before_anything_is_written(
    pair: Path, setting: str, message: str
) -> None:
    status, out, err = run(pair, "build", "--set", setting)
    assert (status, out) == (2, "")
    assert message in err
    assert not (pair / ".specdeploy" / "repository").exists()


def test_a_version_is_never_guessed(pair: Path) -> None:
    (pair / "specdeploy.yaml").write_text(CONFIG.replace(", trtllm_version: 1.2.1", ""))
    status, _, err = run(pair, "build", "--dry-run")
    assert status == 2
    assert "nothing tells the TensorRT-LLM version" in err
    named = planned(pair, "--set", "runtime.container=26.04")
    assert named["settings"]["trtllm-serve.yaml"].startswith("# TensorRT-LLM 1.2.1")


def test_the_plain_dry_run_tells_the_command_and_the_notes(pair: Path) -> None:
    status, out, _ = run(pair, "build", "--dry-run")
    assert status == 0
    assert "  without Triton  trtllm-serve " in out
    assert "  note     the overlap scheduler is off" in out
