from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from specdeploy.adapters.config_files import LocalConfigFiles, parse_config
from specdeploy.core.settings import ConfigFile
from specdeploy.errors import ConfigError


def parse(text: str) -> ConfigFile:
    return parse_config(text, name="pair.yaml", directory=Path("/deployments"))


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return str(caught.value)


def read(path: Path) -> ConfigFile:
    return LocalConfigFiles().read_config(path, name=path.name)


def read_refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read(path)
    return str(caught.value)


def test_every_key_knows_its_line() -> None:
    file = parse("# a comment\ntarget:\n  path: t\n\nmethod: ngram\n")
    assert file.lines == {"target": 2, "target.path": 3, "method": 5}


def test_anchors_and_merge_keys_are_followed() -> None:
    file = parse("target: &model\n  path: t\n  tp: 2\ndraft:\n  <<: *model\n  path: d\n")
    assert file.values["draft"] == {"path": "d", "tp": 2}
    assert file.lines["draft.tp"] == 3


def test_a_mapping_used_twice_by_alias_is_read_twice() -> None:
    file = parse("target: &model\n  <<: {tp: 2}\n  tp: 1\n  path: t\ndraft: *model\n")
    assert file.values["draft"] == {"path": "t", "tp": 1}


def test_a_key_written_twice_is_refused_with_both_lines() -> None:
    message = refusal("method: ngram\ntarget: {path: t}\nmethod: none\n")
    assert message == "pair.yaml:3: 'method' is set on line 1 already"


def test_a_nested_key_written_twice_is_refused() -> None:
    assert refusal("target:\n  tp: 1\n  tp: 2\n").startswith("pair.yaml:3: 'tp'")


def test_a_tab_is_refused_with_its_line() -> None:
    assert refusal("target:\n  path: t\n\tmethod: ngram\n").startswith("pair.yaml:3: not YAML")


def test_unclosed_brackets_are_refused_with_a_line() -> None:
    assert refusal("target: {path: t\nmethod: ngram\n").startswith("pair.yaml:2: not YAML")


def test_a_control_character_is_refused_with_its_line() -> None:
    assert refusal("target:\n  path: t\x00\n").startswith("pair.yaml:2: not text")


@pytest.mark.parametrize("text", ['path: "a\\0b"', 'path: "a\\udcffb"', '"a\\ud800b": 1'])
def test_an_escape_that_makes_no_text_is_refused_with_its_line(text: str) -> None:
    assert refusal(f"target:\n  {text}\n").startswith("pair.yaml:2: not YAML: a NUL or half")


def test_a_python_tag_is_refused_and_not_run(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    message = refusal(f"target: !!python/object/apply:os.mkdir ['{witness}']\n")
    assert message.startswith("pair.yaml:1: not YAML")
    assert not witness.exists()


@pytest.mark.parametrize("text", ["", "# only a comment\n", "- a list\n", "just words\n"])
def test_anything_but_a_mapping_is_refused(text: str) -> None:
    assert "must be a mapping" in refusal(text)


def test_a_second_document_is_refused_with_its_line() -> None:
    assert refusal("method: none\n---\nmethod: ngram\n").startswith("pair.yaml:2: not YAML")


def test_a_mapping_that_contains_itself_is_refused() -> None:
    assert "nested too deeply" in refusal("target: &again\n  draft: *again\n")


def test_aliases_that_multiply_are_refused() -> None:
    level = "a0: &a0 {k: 1}\n"
    for depth in range(1, 12):
        copies = ", ".join(f"k{number}: *a{depth - 1}" for number in range(9))
        level += f"a{depth}: &a{depth} {{{copies}}}\n"
    assert "too many keys" in refusal(level)


@pytest.mark.parametrize("key", ["1", "true", "target.path", "[a]"])
def test_a_key_that_is_no_plain_word_is_refused(key: str) -> None:
    assert refusal(f"method: none\n? {key}\n: 1\n").startswith("pair.yaml:2: a key must be")


def test_a_date_is_left_as_text() -> None:
    assert parse("target: {path: 2024-99-99}\n").values == {"target": {"path": "2024-99-99"}}


def test_a_number_that_python_cannot_hold_is_refused() -> None:
    assert "cannot be read" in refusal(f"draft_length: {'9' * 5000}\n")


def test_windows_line_endings_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_bytes(b"\xef\xbb\xbftarget:\r\n  path: t\r\nmethod: ngram\r\n")
    file = read(path)
    assert file.values == {"target": {"path": "t"}, "method": "ngram"}
    assert file.lines["method"] == 3


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_bytes(b"method: ngram\ntarget: {path: \xe9}\n")
    assert read_refusal(path) == f"{path}:2: not UTF-8 text"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert read_refusal(tmp_path / "pair.yaml").endswith("pair.yaml does not exist")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in read_refusal(tmp_path)


def test_the_files_folder_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pair.yaml").write_text("method: none\n")
    monkeypatch.chdir(tmp_path)
    assert read(Path("pair.yaml")).directory == str(tmp_path)


def test_a_settings_file_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text("mine\n")
    with pytest.raises(ConfigError, match="exists already"):
        LocalConfigFiles().write_config(path, "yours\n", overwrite=False)
    assert path.read_text() == "mine\n"
    LocalConfigFiles().write_config(path, "yours\n", overwrite=True)
    assert path.read_text() == "yours\n"
    assert list(tmp_path.iterdir()) == [path]


def test_only_a_file_is_ever_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="not a regular file"):
        LocalConfigFiles().write_config(pipe, "", overwrite=True)
    assert pipe.is_fifo()


def test_a_settings_file_with_too_long_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        LocalConfigFiles().write_config(tmp_path / ("p" * 300), "", overwrite=False)


def test_a_settings_file_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        LocalConfigFiles().write_config(tmp_path / "no" / "pair.yaml", "", overwrite=False)


def write_tuning(folder: Path, content: object) -> Path:
    path = folder / "tuning.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def tuning_refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        LocalConfigFiles().read_tuning(path)
    return str(caught.value)


def test_a_tuning_file_that_is_no_mapping_is_refused_with_what_writes_one(tmp_path: Path) -> None:
    path = write_tuning(tmp_path, "[]")
    with pytest.raises(ConfigError, match=r"tuning\.json: Input should be") as caught:
        LocalConfigFiles().read_tuning(path)
    assert caught.value.hint == "`specdeploy tune` writes it anew"


def test_a_tuning_file_is_read_past_what_it_says_to_people(tmp_path: Path) -> None:
    content = {"schema_version": 1, "verdict": "speculate", "choice": {"draft_length": 6, "x": 1}}
    read_file = LocalConfigFiles().read_tuning(write_tuning(tmp_path, content))
    assert read_file.choice.draft_length == 6
    assert read_file.choice.max_batch_size is None


def test_the_digest_of_a_tuning_file_ignores_layout_and_sees_content(tmp_path: Path) -> None:
    files = LocalConfigFiles()
    one = files.read_tuning(write_tuning(tmp_path, '{"choice": {}, "verdict": "off"}'))
    same = files.read_tuning(write_tuning(tmp_path, '{"verdict":"off",\n "choice":{}}'))
    other = files.read_tuning(write_tuning(tmp_path, '{"verdict": "speculate", "choice": {}}'))
    assert one.content_digest == same.content_digest
    assert one.content_digest != other.content_digest


def test_a_newer_tuning_file_is_refused_by_its_version(tmp_path: Path) -> None:
    path = write_tuning(tmp_path, {"schema_version": 2, "choice": {}})
    assert "schema_version 2 is not supported" in tuning_refusal(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ({}, "choice: Field required"),
        ({"choice": {"draft_length": "6"}}, "choice.draft_length: Input should be a valid integer"),
    ],
)
def test_a_broken_tuning_file_is_refused(tmp_path: Path, content: object, complaint: str) -> None:
    assert complaint in tuning_refusal(write_tuning(tmp_path, content))
