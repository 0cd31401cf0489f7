"""Who ends an answer, who pads, and in which chat format the models were tuned."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import a_member, a_model, ask, codes, found, read
from tokenizer_files import a_bpe

from specdeploy.core.compat import Member
from specdeploy.core.models import SpecialIds
from specdeploy.core.tokenizers import TokenizerSpec

LLAMA = ("<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")  # 320 to 323
TEMPLATE = "{{ '<|eot_id|>' }}{% if tools %}{{ '<|eom_id|>' }}{% endif %}{{ '<|eot_id|>' }}"


@pytest.fixture
def tokenizer(tmp_path: Path) -> TokenizerSpec:
    return read(a_bpe(specials=LLAMA), tmp_path)


def member(side: str, tokenizer: TokenizerSpec | None = None, **ids: object) -> Member:
    model = a_model(special_ids=SpecialIds.model_validate(ids), parameters=len(side) * 10**6)
    return a_member(side, model=model, tokenizer=tokenizer)


def test_the_turn_end_becomes_end_id_and_the_others_stop_ids(tokenizer: TokenizerSpec) -> None:
    chat = tokenizer.evolve(chat_template=TEMPLATE)
    target = member("target", chat, bos=320, eos=[321], generation_eos=[321, 322, 323])
    draft = member("draft", chat, bos=320, eos=[321])
    report = ask(target=target, draft=draft)
    assert found(report, "eos-list").facts == {"end_id": 323, "stop_ids": [321, 322]}
    assert found(report, "eos-differs").facts == {"target": [321, 322, 323], "draft": [321]}
    assert found(report, "eos-differs").severity == "warning"
    assert report.verdict == "compatible"


def test_a_template_that_says_eos_token_means_the_tokenizers_own(tokenizer: TokenizerSpec) -> None:
    chat = tokenizer.evolve(chat_template="{{ message + eos_token }}", eos_token="<|eom_id|>")
    report = ask(target=member("target", chat, eos=[321, 322, 323]))
    assert found(report, "eos-list").facts["end_id"] == 322


def test_without_a_template_the_tokenizers_end_token_is_taken(tokenizer: TokenizerSpec) -> None:
    named = tokenizer.evolve(eos_token="<|eot_id|>")
    report = ask(target=member("target", named, eos=[321, 323]))
    assert found(report, "eos-list").facts["end_id"] == 323


def test_without_a_tokenizer_the_first_end_id_is_taken() -> None:
    report = ask(target=member("target", eos=[7, 8]))
    assert found(report, "eos-list").facts == {"end_id": 7, "stop_ids": [8]}


def test_an_end_that_only_the_tokenizer_names_is_a_warning(tokenizer: TokenizerSpec) -> None:
    named = tokenizer.evolve(eos_token="<|eot_id|>")
    finding = found(ask(target=member("target", named)), "eos-missing")
    assert finding.severity == "warning"
    assert finding.facts == {"tokenizer_eos": 323}


def test_a_missing_pad_id_becomes_the_end_id_with_a_note() -> None:
    finding = found(ask(target=member("target", eos=[2, 3])), "pad-missing")
    assert finding.severity == "info"
    assert finding.facts["pad_id"] == 2


def test_pad_id_0_is_an_id() -> None:
    assert "pad-missing" not in codes(ask(target=member("target", eos=[2], pad=0)))


def test_the_tokenizers_pad_token_is_taken_when_the_config_has_none(
    tokenizer: TokenizerSpec,
) -> None:
    padded = tokenizer.evolve(pad_token="<|begin_of_text|>")
    assert "pad-missing" not in codes(ask(target=member("target", padded, eos=[321])))


def test_no_end_id_at_all_is_a_warning() -> None:
    assert "eos-missing" in codes(ask(target=member("target")), "warning")


def test_the_same_end_ids_in_another_order_are_the_same() -> None:
    report = ask(target=member("target", eos=[2, 3]), draft=member("draft", eos=[3, 2]))
    assert "eos-differs" not in codes(report)


def test_other_bos_and_pad_ids_are_told() -> None:
    report = ask(
        target=member("target", bos=1, eos=[2], pad=0), draft=member("draft", bos=5, eos=[2], pad=9)
    )
    assert found(report, "bos-differs").severity == "warning"
    assert found(report, "pad-differs").severity == "info"


def test_a_special_id_outside_the_embedding_is_an_error() -> None:
    report = ask(draft=member("draft", eos=[512]))
    finding = found(report, "special-id-out-of-range")
    assert finding.facts == {"side": "draft", "ids": [512], "rows": 512}


def templates(target: str | None, draft: str | None, tokenizer: TokenizerSpec) -> set[str]:
    report = ask(
        target=a_member("target", tokenizer=tokenizer.evolve(chat_template=target)),
        draft=a_member("draft", tokenizer=tokenizer.evolve(chat_template=draft)),
    )
    return {code for code in codes(report, "warning") if code.startswith("chat-template")}


def test_chat_templates_are_compared(tokenizer: TokenizerSpec) -> None:
    assert templates("a", "a\n", tokenizer) == set()
    assert templates(None, None, tokenizer) == set()
    assert templates("a", "b", tokenizer) == {"chat-template-differs"}
    assert templates("a", None, tokenizer) == {"chat-template-missing"}
    assert templates(None, "a", tokenizer) == {"chat-template-missing"}
