"""Runs ``specdeploy check`` in process and reads its document."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_dirs import SMALL_LLAMA, write_model
from tokenizer_files import a_bpe
from tokenizers import Tokenizer

from specdeploy import cli

SMALL_DRAFT = {**SMALL_LLAMA, "num_hidden_layers": 1}

Report = dict[str, Any]
Check = Callable[..., tuple[int, Report]]


def checker(capsys: pytest.CaptureFixture[str]) -> Check:
    """Return what runs the command with ``--json``: its exit code and its document."""

    def run(*words: str | Path) -> tuple[int, Report]:
        status = cli.run(["check", *map(str, words), "--json"])
        report: Report = json.loads(capsys.readouterr().out)
        return status, report

    return run


def a_pair(folder: Path) -> tuple[str, ...]:
    """Write a small pair that shares its tokenizer, and return the flags that name it."""
    return named(
        write_model(folder / "target", SMALL_LLAMA, tokenizer=a_bpe()),
        write_model(folder / "draft", SMALL_DRAFT, tokenizer=a_bpe()),
    )


def plans(
    folder: Path,
    target: dict[str, object],
    draft: dict[str, object],
    *,
    tokenizer: Tokenizer | None = None,
) -> tuple[str, ...]:
    """Write two directories without weights, and return the flags that name them."""
    return named(
        write_model(folder / "t", target, tokenizer=tokenizer),
        write_model(folder / "d", draft, tokenizer=tokenizer),
    )


def named(target: Path, draft: Path) -> tuple[str, ...]:
    """Return the flags that name a pair."""
    return ("--target", str(target), "--draft", str(draft))


def codes(report: Report, severity: str | None = None) -> set[str]:
    """Return the codes of a document, of one severity or of all."""
    return {f["code"] for f in report["findings"] if severity in (None, f["severity"])}


def finding(report: Report, code: str) -> dict[str, Any]:
    """Return the one finding with this code."""
    (one,) = [f for f in report["findings"] if f["code"] == code]
    found: dict[str, Any] = one
    return found
