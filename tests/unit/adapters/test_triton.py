"""A server that was launched here, as far as it needs no tritonserver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_doubles import a_record

from specdeploy.adapters.triton import TritonServer
from specdeploy.core.repository import ModelRepository
from specdeploy.core.serving import LaunchSpec


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TritonServer]:
    described = ModelRepository(
        runtime="reference",
        shape="engine",
        method="none",
        models=["ensemble"],
        entry_model="ensemble",
        streaming=True,
        draft_length=0,
        plan_digest="0" * 64,
        files=[],
    )
    spec = LaunchSpec(
        repository=str(tmp_path), description=described, state_directory=str(tmp_path)
    )
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        yield TritonServer(spec, a_record(log=str(tmp_path / "log")), child)


def test_new_log_lines_are_whole_and_told_once(server: TritonServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntw")
    assert server.new_log_lines() == ["one"]
    log.write_text("one\ntwo\nthree\n")
    assert server.new_log_lines() == ["two", "three"]
    assert server.new_log_lines() == []


def test_clearing_the_logs_away_disturbs_no_running_server(
    server: TritonServer, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("one\n")
    server.new_log_lines()
    (tmp_path / "log").unlink()
    assert server.new_log_lines() == server.log_lines() == []
