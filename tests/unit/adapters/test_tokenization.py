"""Tokenizers are read from their own files, as the server would load them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizer_files import SPECIALS, a_bpe, a_word_list, write_tokenizer

from specdeploy.adapters.tokenization import LocalTokenizers
from specdeploy.core.tokenizers import PROBES, TokenizerSpec
from specdeploy.errors import CheckpointError


def read(directory: Path) -> TokenizerSpec:
    spec = LocalTokenizers().read_tokenizer(directory)
    assert spec is not None
    return spec


def test_a_directory_without_tokenizer_files_has_none(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert LocalTokenizers().read_tokenizer(tmp_path) is None


def test_map_rules_and_encodings_are_read(tmp_path: Path) -> None:
    tokenizer = a_bpe()
    spec = read(write_tokenizer(tmp_path, tokenizer))
    assert spec.kind == "BPE"
    assert spec.tokens == tokenizer.get_vocab()
    assert [token.text for token in spec.added_tokens] == list(SPECIALS)
    assert spec.encodings[PROBES[0]] == tokenizer.encode(PROBES[0]).ids
    assert spec.normalizer is None
    assert json.loads(spec.pre_tokenizer or "")["type"] == "ByteLevel"


def test_truncation_and_padding_in_the_file_do_not_reach_the_encodings(tmp_path: Path) -> None:
    plain = read(write_tokenizer(tmp_path / "plain", a_bpe()))
    tokenizer = a_bpe()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=300)
    assert read(write_tokenizer(tmp_path / "cut", tokenizer)).encodings == plain.encodings


def test_a_text_that_cannot_be_encoded_is_none(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path, a_word_list(["<unk>", "word"])) / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["unk_token"] = "missing"
    path.write_text(json.dumps(content))
    spec = read(tmp_path)
    assert spec.encodings["word"] == [1]
    assert spec.encodings[PROBES[0]] is None


def test_tokens_that_only_the_settings_name_are_added(tmp_path: Path) -> None:
    listed = {"323": {"content": "<tool>", "special": True}, "320": {"content": SPECIALS[0]}}
    write_tokenizer(tmp_path, a_bpe(), settings={"added_tokens_decoder": listed})
    (tmp_path / "added_tokens.json").write_text('{"<tool>": 323, "<more>": 324}')
    spec = read(tmp_path)
    assert (spec.tokens["<tool>"], spec.tokens["<more>"]) == (323, 324)
    assert spec.facts.added_size == 5
    assert spec.conflicts == []


@pytest.mark.parametrize(
    ("token_id", "text"), [("9", SPECIALS[0]), ("321", "<other>")], ids=["other-id", "taken-id"]
)
def test_a_token_that_the_files_disagree_on_is_a_conflict(
    tmp_path: Path, token_id: str, text: str
) -> None:
    settings: dict[str, object] = {"added_tokens_decoder": {token_id: {"content": text}}}
    spec = read(write_tokenizer(tmp_path, a_bpe(), settings=settings))
    assert spec.conflicts == [text]
    assert spec.tokens[SPECIALS[0]] == 320


def test_special_tokens_may_be_text_or_objects(tmp_path: Path) -> None:
    settings: dict[str, object] = {"eos_token": {"content": SPECIALS[2]}, "pad_token": SPECIALS[0]}
    spec = read(write_tokenizer(tmp_path, a_bpe(), settings=settings))
    assert (spec.eos_token, spec.pad_token) == (SPECIALS[2], SPECIALS[0])


@pytest.mark.parametrize(
    ("stated", "template"),
    [
        ("a", "a"),
        ([{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "tool", "template": "t"}], "t"),
        (None, None),
        (7, None),
    ],
)
def test_a_chat_template_in_the_settings_is_found(
    tmp_path: Path, stated: object, template: str | None
) -> None:
    settings = {"chat_template": stated}
    assert read(write_tokenizer(tmp_path, a_bpe(), settings=settings)).chat_template == template


def test_a_chat_template_file_wins_over_the_settings(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, a_bpe(), settings={"chat_template": "settings"})
    (tmp_path / "chat_template.jinja").write_text("file")
    assert read(tmp_path).chat_template == "file"


def test_the_same_file_is_parsed_once_and_each_directory_keeps_its_settings(
    tmp_path: Path,
) -> None:
    reader = LocalTokenizers()
    first = reader.read_tokenizer(write_tokenizer(tmp_path / "a", a_bpe()))
    settings: dict[str, object] = {"chat_template": "b"}
    second = reader.read_tokenizer(write_tokenizer(tmp_path / "b", a_bpe(), settings=settings))
    assert first is not None
    assert second is not None
    assert first.base_tokens is second.base_tokens
    assert (first.chat_template, second.chat_template) == (None, "b")


def test_nothing_is_run_to_read_a_template(tmp_path: Path) -> None:
    hostile = "{{ ''.__class__.__mro__ }}{{ cycler.__init__.__globals__.os.popen('touch x') }}"
    spec = read(write_tokenizer(tmp_path, a_bpe(), settings={"chat_template": hostile}))
    assert spec.chat_template == hostile
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]


@pytest.mark.parametrize(
    "name", ["tokenizer.model", "spiece.model", "tiktoken.model", "vocab.json", "vocab.txt"]
)
def test_another_format_alone_is_refused_with_the_way_out(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=f"{name} only") as caught:
        LocalTokenizers().read_tokenizer(tmp_path)
    assert "save_pretrained" in (caught.value.hint or "")


def test_a_directory_in_the_files_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        LocalTokenizers().read_tokenizer(tmp_path)
