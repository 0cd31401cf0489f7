from __future__ import annotations

from pathlib import Path

import pytest
from configs import FakeHub

from specdeploy.adapters.config_files import LocalConfigFiles
from specdeploy.core.config import METHODS
from specdeploy.core.repository import Method
from specdeploy.core.starter import StartedFile
from specdeploy.errors import ConfigError
from specdeploy.events import Reporter
from specdeploy.workflows.deployment import ConfigRequest, load_config, locate_models
from specdeploy.workflows.init import InitRequest, init


class Warnings(Reporter):
    """Keeps what was warned of."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def warning(self, message: str) -> None:
        self.said.append(message)


def start(request: InitRequest, reporter: Reporter | None = None) -> StartedFile:
    return init(request, files=LocalConfigFiles(), reporter=reporter or Reporter())


def a_request(
    cwd: Path,
    *,
    target: str = "t",
    draft: str | None = "d",
    method: Method | None = None,
    output: str = "specdeploy.yaml",
) -> InitRequest:
    return InitRequest(cwd=cwd, target=target, draft=draft, method=method, output=Path(output))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t").mkdir()
    (tmp_path / "d").mkdir()
    return tmp_path


@pytest.mark.parametrize("method", METHODS)
def test_the_written_file_says_what_was_asked(folder: Path, method: Method) -> None:
    start(a_request(folder, method=method))
    loaded = load_config(ConfigRequest(cwd=folder), files=LocalConfigFiles())
    assert loaded.config.method == method
    assert loaded.config.target.path == "t"
    assert loaded.config.draft is not None
    assert loaded.config.draft.path == "d"
    assert loaded.unused == []


def test_the_written_file_is_short_and_commented(folder: Path) -> None:
    start(a_request(folder))
    text = (folder / "specdeploy.yaml").read_text()
    assert text.startswith("#")
    assert len(text.splitlines()) < 30


@pytest.mark.parametrize(
    "name",
    ['a "b": #c', "yes", "1.10", "caf\u00e9 \U0001f600", "x\\y", "a\nb", "a\x7f\x85b", "a\u2028b"],
)
def test_any_folder_name_survives_the_file(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    start(a_request(folder, target=name, draft=None))
    loaded = load_config(ConfigRequest(cwd=folder), files=LocalConfigFiles())
    assert locate_models(loaded, hub=FakeHub()).target == folder / name


def test_a_file_in_another_folder_finds_the_same_models(folder: Path) -> None:
    (folder / "configs").mkdir()
    started = start(a_request(folder, output="configs/pair.yaml"))
    assert (started.target, started.draft) == ("../t", "../d")
    request = ConfigRequest(cwd=folder, config=Path("configs/pair.yaml"))
    paths = locate_models(load_config(request, files=LocalConfigFiles()), hub=FakeHub())
    assert (paths.target, paths.draft) == (folder / "t", folder / "d")


def test_an_absolute_path_is_kept(folder: Path) -> None:
    assert start(a_request(folder, target=str(folder / "t"))).target == str(folder / "t")


def test_a_hub_id_is_kept_and_said_to_be_one(folder: Path) -> None:
    warnings = Warnings()
    started = start(a_request(folder, target="owner/name", output="pair.yaml"), warnings)
    assert started.target == "owner/name"
    assert warnings.said == ["owner/name is not a folder here; taken as a Hub id"]


def test_a_path_with_nothing_there_is_said(folder: Path) -> None:
    warnings = Warnings()
    start(a_request(folder, draft="./later"), warnings)
    assert warnings.said == ["./later is not a folder here; there is nothing yet"]


def test_a_name_longer_than_the_system_takes_is_nothing_yet(folder: Path) -> None:
    warnings = Warnings()
    start(a_request(folder, target="t" * 300), warnings)
    assert "there is nothing yet" in warnings.said[0]


@pytest.mark.parametrize(("target", "draft"), [("", None), ("t", "")])
def test_an_empty_path_is_refused(folder: Path, target: str, draft: str | None) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        start(a_request(folder, target=target, draft=draft))


def test_a_name_that_is_not_utf8_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is not UTF-8"):
        start(a_request(folder, target="t\udcff"))
    assert not (folder / "specdeploy.yaml").exists()


def test_without_a_draft_the_method_is_ngram(folder: Path) -> None:
    assert start(a_request(folder, draft=None)).method == "ngram"


def test_draft_target_without_a_draft_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="needs a draft model"):
        start(a_request(folder, draft=None, method="draft_target"))
    assert not (folder / "specdeploy.yaml").exists()
