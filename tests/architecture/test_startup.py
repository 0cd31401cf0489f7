"""What a command does not need, it does not import."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_checkpoints import write_checkpoint

HEAVY = {"torch", "transformers", "tritonclient", "grpc", "plotly", "pynvml"}
PROTOBUF = "tritonclient.grpc.model_config_pb2"

PROBE = """
import json, sys
from specdeploy.cli import run
status = run(sys.argv[1:])
print("\\n" + json.dumps({"status": status, "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pair and its settings file."""
    folder = tmp_path_factory.mktemp("startup")
    write_checkpoint(folder / "t", hidden=32, layers=2)
    write_checkpoint(folder / "d", seed=1)
    (folder / "specdeploy.yaml").write_text("target: {path: t}\ndraft: {path: d}\n")
    return folder


def heavy_modules(folder: Path, *words: str) -> set[str]:
    """Run a command in a process of its own and return the heavy modules it loaded."""
    # A coverage run may put its own start-up code into child processes.
    environment = {name: value for name, value in os.environ.items() if "COV" not in name}
    finished = subprocess.run(
        [sys.executable, "-c", PROBE, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    told = json.loads(finished.stdout.splitlines()[-1])
    assert told["status"] == 0, finished.stderr
    return {name for name in told["modules"] if name.partition(".")[0] in HEAVY}


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["init", "--help"],
        ["build", "--help"],
        ["serve", "--help"],
        ["ask", "--help"],
        ["doctor", "--help"],
        ["config"],
        ["schema"],
        ["inspect", "t"],
        ["check"],
        ["check", "--target", "t", "--draft", "d", "--json"],
        ["estimate", "--target", "t", "--gpu", "l4"],
        ["tune", "--gpu", "l4", "--acceptance", "0.7", "--workspace", "tuned"],
    ],
    ids=" ".join,
)
def test_a_command_that_plans_imports_nothing_heavy(folder: Path, words: list[str]) -> None:
    assert heavy_modules(folder, *words) == set()


def test_rendering_loads_only_the_protobuf_module_of_tritonclient(folder: Path) -> None:
    assert heavy_modules(folder, "build") <= {PROTOBUF}
    repository = folder / ".specdeploy" / "repository"
    shutil.rmtree(repository.resolve())
    repository.unlink()
    assert heavy_modules(folder, "build", "--only", "repository") <= {PROTOBUF}
    assert list(repository.glob("*/config.pbtxt"))


def test_the_probe_sees_a_heavy_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PROBE", f"import grpc\n{PROBE}")
    assert "grpc" in heavy_modules(folder, "--help")
