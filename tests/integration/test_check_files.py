"""``specdeploy check`` on broken files and on the Hub's cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from check_runs import Check, a_pair, checker, named
from checkpoint_dirs import (
    SMALL_LLAMA,
    write_model,
)
from tokenizer_files import a_bpe

from specdeploy import cli


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    return checker(capsys)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, ...]:
    return a_pair(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"model": {"type": "Nothing"}}'),
        ("tokenizer.json", ""),
        ("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {"content": "<a>"}}}'),
        ("added_tokens.json", '{"<a>": null}'),
        ("config.json", "{"),
    ],
)
def test_a_broken_file_is_one_clear_error(
    tmp_path: Path,
    pair: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: str,
) -> None:
    (tmp_path / "draft" / name).write_text(content)
    assert cli.run(["check", *pair, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: draft ")
    assert name in captured.err
    assert "Traceback" not in captured.err


def test_a_tokenizer_in_another_format_says_how_to_convert_it(
    tmp_path: Path, pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "draft" / "tokenizer.json").rename(tmp_path / "draft" / "tokenizer.model")
    assert cli.run(["check", *pair]) == 2
    message = capsys.readouterr().err
    assert "tokenizer.model only" in message
    assert "save_pretrained" in message


def test_an_lfs_pointer_in_place_of_a_shard_is_one_error(
    tmp_path: Path, pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4976698672\n"
    (tmp_path / "target" / "model.safetensors").write_text(pointer)
    assert cli.run(["check", *pair]) == 2
    assert "LFS" in capsys.readouterr().err


def hub_cache(folder: Path) -> Path:
    """Write a target as the Hub's cache does: a snapshot of links into blobs."""
    model = folder / "models--org--small"
    blobs = write_model(model / "blobs", SMALL_LLAMA, tokenizer=a_bpe())
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
    return snapshot


def test_a_read_only_cache_of_links_is_read_and_left_alone(
    check: Check, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    snapshot = hub_cache(tmp_path)
    before = sorted(os.walk(snapshot.parents[1]))
    snapshot.chmod(0o555)
    status, _ = check(*named(snapshot, Path(pair[3])))
    snapshot.chmod(0o755)
    assert status == 0
    assert sorted(os.walk(snapshot.parents[1])) == before


def test_a_link_out_of_a_cache_that_is_half_there_is_told(
    tmp_path: Path, pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = hub_cache(tmp_path)
    (snapshot / "tokenizer.json").resolve().unlink()
    assert cli.run(["check", *named(snapshot, Path(pair[3]))]) == 2
    message = capsys.readouterr().err
    assert "tokenizer.json is a broken link to ../../blobs/tokenizer.json" in message
