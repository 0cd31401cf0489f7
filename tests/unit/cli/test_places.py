from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from specdeploy.cli.places import find_served, find_workspace
from specdeploy.errors import ConfigError
from specdeploy.events import Reporter

CONFIG = "target: {path: t}\nmethod: none\nserving: {grpc_port: 8001}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SPECDEPLOY_")]:
        monkeypatch.delenv(name)
    return tmp_path


def repository(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "repository.json").write_text("{}")
    return path


def served(named: str | None, workspace: str | None = None) -> tuple[Path, Path, int]:
    with click.Context(click.Command("serve")):
        place = find_served(
            Path(named) if named else None, Path(workspace) if workspace else None, Reporter()
        )
    return place.repository, place.workspace, place.serving.grpc_port


def test_a_file_means_the_repository_in_its_workspace(folder: Path) -> None:
    (folder / "pair").mkdir()
    (folder / "pair/pair.yaml").write_text(CONFIG)
    workspace = folder / "pair/.specdeploy"
    assert served("pair/pair.yaml") == (workspace / "repository", workspace, 8001)


def test_nothing_means_the_file_in_the_current_folder(folder: Path) -> None:
    (folder / "specdeploy.yaml").write_text(CONFIG)
    assert served(None)[1] == folder / ".specdeploy"


def test_a_workspace_given_beside_a_file_wins_over_the_files(folder: Path) -> None:
    (folder / "specdeploy.yaml").write_text(CONFIG + "workspace: elsewhere\n")
    assert served("specdeploy.yaml", "here")[1] == folder / "here"


def test_a_workspace_means_its_own_repository(folder: Path) -> None:
    repository(folder / "w/repository")
    assert served("w")[:2] == (Path("w/repository"), folder / "w")


def test_a_repository_in_a_workspace_keeps_its_state_there(folder: Path) -> None:
    repository(folder / "w/repository")
    repository(folder / "v/repositories/0123")
    assert served("w/repository")[1] == folder / "w"
    assert served("v/repositories/0123")[1] == folder / "v"


def test_a_repository_elsewhere_gets_a_workspace_beside_it(folder: Path) -> None:
    repository(folder / "models/chat")
    assert served("models/chat")[1] == folder / "models/.specdeploy"


def test_the_workspace_of_a_repository_can_be_chosen(folder: Path) -> None:
    repository(folder / "models/chat")
    assert served("models/chat", "state")[1] == folder / "state"


def test_no_file_and_no_name_is_a_usage_error() -> None:
    with pytest.raises(ConfigError, match=r"no specdeploy\.yaml"):
        served(None)


def workspace_of(named: str | None) -> Path:
    with click.Context(click.Command("stop")):
        return find_workspace(Path(named) if named else None, Reporter())


def test_a_server_is_looked_for_in_the_workspace_of_the_file(folder: Path) -> None:
    (folder / "specdeploy.yaml").write_text(CONFIG + "workspace: elsewhere\n")
    assert workspace_of(None) == workspace_of("specdeploy.yaml") == folder / "elsewhere"


def test_without_a_file_the_workspace_is_the_default_one(folder: Path) -> None:
    assert workspace_of(None) == folder / ".specdeploy"


def test_a_folder_is_the_workspace_or_holds_it(folder: Path) -> None:
    (folder / "pair/.specdeploy").mkdir(parents=True)
    assert workspace_of("pair") == workspace_of("pair/.specdeploy") == folder / "pair/.specdeploy"


def test_a_workspace_that_does_not_exist_is_a_usage_error() -> None:
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        workspace_of("nowhere")
