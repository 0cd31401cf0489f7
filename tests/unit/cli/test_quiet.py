"""``-q`` means the same for every command: errors, an answer's text, and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from server_doubles import FakeLauncher, FakeRecords, FakeServer, a_record, serving_world
from servers import echo_repository

from specdeploy import cli, wiring


@pytest.mark.parametrize("alive", [{4242}, set()])
def test_quiet_stop_prints_nothing(
    alive: set[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(wiring, "server_records", lambda _: FakeRecords(a_record()))
    monkeypatch.setattr(wiring, "server_launcher", lambda: FakeLauncher([], alive=alive))
    assert cli.run(["stop", str(tmp_path), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.run(["stop", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("stopped" if alive else "the server with pid 4242")


def test_quiet_serve_prints_nothing_but_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = echo_repository(tmp_path / "repository")
    monkeypatch.setattr(wiring, "serve_tools", lambda *_, **__: serving_world(FakeServer()).tools)
    words = ["serve", str(repository), "--detach"]
    assert cli.run([*words, "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.run([*words, "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "ready"
    assert cli.run(words) == 0
    assert capsys.readouterr().out.startswith("ready ")
