"""Hub ids: the cache first, then the network, then what the user can do."""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from checkpoint_files import llama_shapes, write_config, write_safetensors, write_sharded

from specdeploy.adapters import hub
from specdeploy.adapters.hub import HubFiles
from specdeploy.errors import ConfigError


class FakeHub:
    """Answers as huggingface_hub does: a folder, or an error of its own."""

    def __init__(self, *, cached: Path | None = None, remote: Path | None = None) -> None:
        self.cached, self.remote = cached, remote
        self.downloads: list[bool] = []

    def __call__(self, repo_id: str, *, local_files_only: bool, weights: bool) -> Path:
        if not local_files_only:
            self.downloads.append(weights)
        found = self.cached if local_files_only else self.remote
        if found is None:
            raise FileNotFoundError(f"no answer for {repo_id}\nsecond line")
        return found


def with_hub(monkeypatch: pytest.MonkeyPatch, fake: FakeHub) -> FakeHub:
    monkeypatch.setattr(hub, "_snapshot", fake)
    return fake


def planning_files(folder: Path) -> Path:
    (write_config(folder) / "tokenizer.json").write_text("{}")
    return folder


def test_a_cached_model_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = with_hub(monkeypatch, FakeHub(cached=planning_files(tmp_path)))
    assert HubFiles().resolve("org/name") == tmp_path
    assert fake.downloads == []


def test_a_model_that_is_not_cached_is_downloaded_without_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = with_hub(monkeypatch, FakeHub(remote=planning_files(tmp_path)))
    assert HubFiles().resolve("org/name") == tmp_path
    assert fake.downloads == [False]


def test_a_build_downloads_weights_that_planning_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached, whole = planning_files(tmp_path / "a"), planning_files(tmp_path / "b")
    fake = with_hub(monkeypatch, FakeHub(cached=cached, remote=whole))
    assert HubFiles(weights=True).resolve("org/name") == whole
    assert fake.downloads == [True]


def test_cached_weights_are_not_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_safetensors(planning_files(tmp_path) / "model.safetensors", llama_shapes())
    fake = with_hub(monkeypatch, FakeHub(cached=tmp_path))
    assert HubFiles(weights=True).resolve("org/name") == tmp_path
    assert fake.downloads == []


def test_half_a_cache_is_enough_to_plan_with_when_there_is_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_hub(monkeypatch, FakeHub(cached=write_config(tmp_path)))
    assert HubFiles().resolve("org/name") == tmp_path


@pytest.mark.parametrize("place", ["empty", "shards missing"])
def test_half_a_cache_is_not_enough_to_build_with(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "cached"
    if place == "empty":
        cached.mkdir()
    else:
        write_sharded(planning_files(cached), llama_shapes())
        (cached / "model-00001-of-00002.safetensors").unlink()
    fake = with_hub(monkeypatch, FakeHub(cached=cached))
    with pytest.raises(ConfigError, match="cannot be downloaded"):
        HubFiles(weights=True).resolve("org/name")
    assert fake.downloads == [True]


def test_a_model_that_cannot_be_had_says_how_to_download_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_hub(monkeypatch, FakeHub())
    with pytest.raises(ConfigError, match="org/name is not cached and cannot be") as caught:
        HubFiles().resolve("org/name")
    assert "second line" not in str(caught.value)
    assert "hf download org/name --local-dir name" in (caught.value.hint or "")


def test_without_the_library_the_error_says_how_to_download_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="huggingface_hub is not installed") as caught:
        HubFiles().resolve("org/name")
    assert "hf download org/name" in (caught.value.hint or "")


def test_the_library_finds_a_snapshot_in_its_own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    folder, revision = tmp_path / "models--org--name", "b" * 40
    planning_files(folder / "snapshots" / revision)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(revision)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert HubFiles().resolve("org/name") == folder / "snapshots" / revision


class Asked:
    """The library's call, and which files it would have downloaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._allowed: list[str] = []
        self._ignored: list[str] = []

    def __call__(
        self, repo_id: str, *, allow_patterns: list[str], ignore_patterns: list[str], **_: object
    ) -> str:
        del repo_id
        self._allowed, self._ignored = allow_patterns, ignore_patterns
        return str(self._folder)

    def has(self, name: str) -> bool:
        allowed, ignored = (
            any(fnmatch(name, pattern) for pattern in patterns)
            for patterns in (self._allowed, self._ignored)
        )
        return allowed and not ignored


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    call = Asked(tmp_path)
    library = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(library, "snapshot_download", call)
    HubFiles(weights=True).resolve("org/name")
    return call


@pytest.mark.parametrize("name", ["config.json", "modeling_own.py", "merges.txt", "w.safetensors"])
def test_every_kind_of_file_that_a_build_reads_is_asked_for(name: str, asked: Asked) -> None:
    assert asked.has(name)


@pytest.mark.parametrize("name", ["consolidated.safetensors", "original/model.safetensors"])
def test_a_second_copy_of_the_weights_is_not_asked_for(name: str, asked: Asked) -> None:
    assert not asked.has(name)
