"""A pair of tiny checkpoints with its settings file, and the command line run on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_checkpoints import write_checkpoint

CONFIG = """schema_version: 1
target: {path: "models/the target's"}
draft: {path: models/draft}
method: draft_target
runtime: {name: reference, shape: engine}
draft_length: 4
limits: {max_seq_len: 512, max_batch_size: 2}
"""


def write_pair(folder: Path) -> Path:
    """Write checkpoints and ``specdeploy.yaml``; return the folder."""
    write_checkpoint(folder / "models/the target's", layers=2, shards=2)
    write_checkpoint(folder / "models/draft", seed=1)
    (folder / "specdeploy.yaml").write_text(CONFIG)
    return folder


def start(
    folder: Path, *words: str, limits: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    """Start ``specdeploy`` in a folder, as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "specdeploy", *words],
        cwd=folder,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limits,  # noqa: PLW1509 - no other thread runs here
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait; return (status, stdout, stderr)."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def run(
    folder: Path, *words: str, limits: Callable[[], None] | None = None
) -> tuple[int, str, str]:
    """Run ``specdeploy`` to its end."""
    return finish(start(folder, *words, limits=limits))


def run_json(folder: Path, *words: str) -> dict[str, Any]:
    """Run ``specdeploy`` to its good end; return the one document it printed."""
    status, out, err = run(folder, *words, "--json")
    assert status == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


def engines(folder: Path) -> list[Path]:
    """Return the artifact directories in the default workspace."""
    return sorted((folder / ".specdeploy").glob("engines/*/[a-z]*"))
