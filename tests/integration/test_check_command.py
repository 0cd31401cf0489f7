"""``specdeploy check`` on real directories: findings, exit codes, output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from check_runs import SMALL_DRAFT, Check, a_pair, checker, codes, finding, named, plans
from checkpoint_dirs import (
    LLAMA_8B,
    QWEN_7B,
    QWEN_HALF_B,
    SMALL_LLAMA,
    llama_tensors,
    write_json,
    write_model,
    write_tensors,
)
from jsonschema import Draft202012Validator
from tokenizer_files import a_bpe, a_word_list, numbered
from tokenizers import Tokenizer

from specdeploy import cli
from specdeploy.core.compat import CODES
from specdeploy.schemas import json_schema

QWEN_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    return checker(capsys)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, ...]:
    return a_pair(tmp_path)


@pytest.fixture(scope="module")
def qwen_tokenizer() -> Tokenizer:
    return a_word_list(numbered(151_643), specials=QWEN_SPECIALS)


def test_a_pair_that_belongs_together_exits_0(check: Check, pair: tuple[str, ...]) -> None:
    status, report = check(*pair)
    assert status == 0
    assert (report["verdict"], report["tokens"], report["findings"]) == ("compatible", "equal", [])
    assert report["target"]["tokenizer"]["size"] == 323
    assert report["draft"]["model"]["layers"] == 1


def test_padded_vocabularies_are_usable_with_a_warning(
    check: Check, tmp_path: Path, qwen_tokenizer: Tokenizer
) -> None:
    flags = plans(tmp_path, QWEN_7B, QWEN_HALF_B, tokenizer=qwen_tokenizer)
    status, report = check(*flags)
    assert status == 0
    facts = finding(report, "vocabulary-padding-differs")["facts"]
    assert (facts["draft_unused_rows"], facts["target_unused_rows"]) == (290, 418)
    assert check(*flags, "--strict")[0] == 3
    status, report = check(*flags, "--use-draft-logits")
    assert status == 3
    assert finding(report, "logits-width-differs")["facts"]["target_row_bytes"] == 608_256


def test_tokenizers_that_differ_exit_3_and_still_print_the_document(
    check: Check, tmp_path: Path
) -> None:
    words = numbered(512)
    other = [*words[:100], words[101], words[100], *words[102:]]
    target = write_model(tmp_path / "t", SMALL_LLAMA, tokenizer=a_word_list(words))
    draft = write_model(tmp_path / "d", SMALL_DRAFT, tokenizer=a_word_list(other))
    status, report = check(*named(target, draft))
    assert status == 3
    assert report["verdict"] == "incompatible"
    assert finding(report, "tokenizer-ids-differ")["facts"]["differing_ids"] == 2


def test_a_draft_of_another_family_is_refused_without_tokenizer_files_too(
    check: Check, tmp_path: Path
) -> None:
    tinyllama = {
        **LLAMA_8B,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_scaling": None,
    }
    status, report = check(*plans(tmp_path, LLAMA_8B, tinyllama))
    assert status == 3
    assert codes(report, "error") == {"ids-beyond-vocabulary"}
    assert codes(report, "warning") >= {"eos-differs", "bos-differs", "draft-context-shorter"}


def test_two_plans_can_be_checked_and_claim_nothing_about_tokens(
    check: Check, tmp_path: Path
) -> None:
    flags = plans(tmp_path, QWEN_7B, QWEN_HALF_B)
    status, report = check(*flags)
    assert status == 0
    assert report["tokens"] == "not-compared"
    assert codes(report, "warning") == {"tokenizer-missing", "vocabulary-rows-differ"}
    assert check(*flags, "--strict")[0] == 3


def test_weights_without_a_tokenizer_are_refused(
    check: Check, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    (tmp_path / "draft" / "tokenizer.json").unlink()
    write_tensors(tmp_path / "draft", llama_tensors(SMALL_DRAFT))
    status, report = check(*pair)
    assert status == 3
    assert finding(report, "tokenizer-missing")["facts"]["side"] == "draft"


def test_the_same_weights_twice_are_a_warning(
    check: Check, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    write_model(tmp_path / "draft", SMALL_LLAMA)
    for side in ("target", "draft"):
        write_tensors(tmp_path / side, llama_tensors(SMALL_LLAMA))
    status, report = check(*pair)
    assert status == 0
    assert codes(report, "warning") == {"same-model"}
    write_tensors(tmp_path / "draft", llama_tensors(SMALL_LLAMA), fill=1)
    assert codes(check(*pair)[1], "warning") == {"draft-not-smaller"}


def test_every_end_id_is_kept_and_the_turn_end_is_chosen(check: Check, tmp_path: Path) -> None:
    specials = ("<|begin|>", "<|end|>", "<|eom|>", "<|eot|>")
    chat: dict[str, object] = {"chat_template": "{{ '<|eot|>' }}", "eos_token": "<|eot|>"}
    base = {**SMALL_LLAMA, "bos_token_id": 320, "eos_token_id": 321, "pad_token_id": -1}
    target = write_model(
        tmp_path / "t",
        base,
        tokenizer=a_bpe(specials=specials),
        settings=chat,
        generation={"eos_token_id": [321, 322, 323]},
    )
    draft = {**base, "num_hidden_layers": 1}
    flags = named(target, write_model(tmp_path / "d", draft, tokenizer=a_bpe(specials=specials)))
    status, report = check(*flags)
    assert status == 0
    assert finding(report, "eos-list")["facts"] == {"end_id": 323, "stop_ids": [321, 322]}
    assert finding(report, "eos-differs")["facts"] == {"target": [321, 322, 323], "draft": [321]}
    assert finding(report, "pad-missing")["facts"]["pad_id"] == 323
    assert finding(report, "chat-template-missing")["facts"]["side"] == "draft"


def test_a_chat_template_may_be_a_file_of_its_own(
    check: Check, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    for side, template in (("target", "a"), ("draft", "b")):
        (tmp_path / side / "chat_template.jinja").write_text(template, encoding="utf-8")
    assert codes(check(*pair)[1]) == {"chat-template-differs"}


def test_only_the_flag_asks_for_acceptance_by_probability(
    check: Check, tmp_path: Path, qwen_tokenizer: Tokenizer
) -> None:
    plans(tmp_path, QWEN_7B, QWEN_HALF_B, tokenizer=qwen_tokenizer)
    file = tmp_path / "pair.yaml"
    file.write_text("target: {path: t}\ndraft: {path: d}\nsampling: {temperature: 0.7}\n")
    status, report = check("pair.yaml")
    assert (status, report["runtime"]) == (0, "reference")
    assert codes(report) == {"vocabulary-padding-differs"}
    status, report = check("pair.yaml", "--use-draft-logits")
    assert status == 3
    assert codes(report, "error") == {"logits-width-differs"}


@pytest.mark.usefixtures("pair")
def test_a_length_that_does_not_fit_is_a_finding_and_not_a_usage_error(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "specdeploy.yaml").write_text(
        "target: {path: target}\ndraft: {path: draft}\nlimits: {max_seq_len: 2048}\n"
    )
    status, report = check()
    assert status == 3
    assert finding(report, "context-too-short")["facts"]["requested"] == 2048


def test_the_document_fits_its_schema(check: Check, tmp_path: Path, pair: tuple[str, ...]) -> None:
    schema = json_schema("check-report")
    for flags in (pair, plans(tmp_path, LLAMA_8B, QWEN_HALF_B)):
        Draft202012Validator(schema).validate(check(*flags)[1])


def test_people_read_the_verdict_first_and_then_findings_by_severity(
    tmp_path: Path, pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(tmp_path / "draft" / "config.json", {**SMALL_DRAFT, "eos_token_id": 600})
    assert cli.run(["check", *pair, "--draft-length", "0"]) == 3
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("incompatible: ")
    assert lines.index("error:") < lines.index("warning:")
    assert any(line.startswith("    hint: ") for line in lines)
    assert captured.err.startswith("error: the pair is incompatible: special-id-out-of-range")


def test_strict_says_that_it_refused_a_usable_pair(
    pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["check", *pair, "--draft-length", "0", "--strict"]) == 3
    captured = capsys.readouterr()
    assert captured.out.startswith("compatible, refused by --strict: ")
    assert "draft-length-zero" in captured.err


def test_quiet_leaves_the_verdict_to_the_status(
    pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["check", *pair, "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.run(["check", *pair, "--draft-length", "0", "--strict", "-q"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "draft-length-zero" in captured.err


def test_every_code_reported_is_in_the_table(check: Check, tmp_path: Path) -> None:
    _, report = check(*plans(tmp_path, LLAMA_8B, QWEN_HALF_B), "--tp", "3", "--gpu", "t4")
    assert len(codes(report)) > 5
    assert codes(report) <= CODES.keys()


def test_the_command_loads_no_heavy_library(pair: tuple[str, ...]) -> None:
    program = (
        "import sys; from specdeploy import cli; status = cli.run(sys.argv[1:]); "
        "heavy = {'torch', 'transformers', 'tritonclient', 'grpc', 'plotly'} & set(sys.modules); "
        "sys.exit(f'status {status}, loaded {heavy}' if heavy or status else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "check", *pair],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
