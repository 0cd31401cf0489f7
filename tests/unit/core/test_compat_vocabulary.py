"""Padding of the embedding is harmless; a token without a row is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import a_member, a_model, ask, codes, found, read
from tokenizer_files import a_bpe, a_word_list, numbered

from specdeploy.core.compat import CompatReport
from specdeploy.core.models import SpecialIds
from specdeploy.core.tokenizers import TokenizerSpec

QWEN = SpecialIds(bos=151_643, eos=[151_645], pad=151_643)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> TokenizerSpec:
    """A tokenizer with Qwen2.5's highest id, 151645."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = a_word_list(numbered(151_643), specials=specials)
    return read(tokenizer, tmp_path_factory.mktemp("qwen"))


def qwen_pair(qwen: TokenizerSpec | None, **changes: object) -> CompatReport:
    target = a_model(vocab_size=152_064, special_ids=QWEN, parameters=10_000_000)
    draft = a_model(vocab_size=151_936, special_ids=QWEN, parameters=1_000_000)
    return ask(
        **{
            "target": a_member("target", model=target, tokenizer=qwen),
            "draft": a_member("draft", model=draft, tokenizer=qwen),
            **changes,
        }
    )


def test_padded_vocabularies_are_a_warning_with_the_numbers(qwen: TokenizerSpec) -> None:
    report = qwen_pair(qwen)
    assert report.verdict == "compatible"
    assert codes(report) == {"vocabulary-padding-differs"}
    finding = found(report, "vocabulary-padding-differs")
    assert finding.severity == "warning"
    assert finding.facts == {
        "draft_rows": 151_936,
        "target_rows": 152_064,
        "difference": 128,
        "highest_id": 151_645,
        "draft_unused_rows": 290,
        "target_unused_rows": 418,
    }
    assert "probability" in (finding.hint or "")


def test_acceptance_by_probability_needs_equal_logits(qwen: TokenizerSpec) -> None:
    report = qwen_pair(qwen, use_draft_logits=True)
    finding = found(report, "logits-width-differs")
    assert report.verdict == "incompatible"
    assert finding.severity == "error"
    assert finding.facts["draft_row_bytes"] == 607_744
    assert finding.facts["target_row_bytes"] == 608_256
    assert "leave --use-draft-logits out" in (finding.hint or "")
    assert "152064" in (finding.hint or "")


def test_tp_padding_counts_in_the_width_of_the_logits() -> None:
    target, draft = (a_model(vocab_size=32_001, parameters=n) for n in (10_000_000, 1_000_000))
    report = ask(
        target=a_member("target", model=target, tp=2),
        draft=a_member("draft", model=draft, tp=1),
        use_draft_logits=True,
    )
    facts = found(report, "logits-width-differs").facts
    assert (facts["target_width"], facts["draft_width"]) == (32_002, 32_001)


def test_equal_widths_allow_acceptance_by_probability() -> None:
    assert "logits-width-differs" not in codes(ask(use_draft_logits=True))


def test_without_tokenizer_files_other_rows_are_a_warning_that_claims_no_padding() -> None:
    report = qwen_pair(None)
    assert report.verdict == "compatible"
    assert report.tokens == "not-compared"
    assert codes(report) == {"tokenizer-missing", "vocabulary-rows-differ"}
    assert found(report, "vocabulary-rows-differ").facts["difference"] == 128


def test_without_tokenizer_files_an_end_id_the_draft_has_no_row_for_is_an_error() -> None:
    target = a_model(vocab_size=128_256, special_ids=SpecialIds(bos=128_000, eos=[128_001]))
    draft = a_model(vocab_size=32_000, special_ids=SpecialIds(bos=1, eos=[2]))
    report = ask(target=a_member("target", model=target), draft=a_member("draft", model=draft))
    finding = found(report, "ids-beyond-vocabulary")
    assert finding.facts == {"side": "draft", "rows": 32_000, "ids": 2, "highest_id": 128_001}
    assert report.verdict == "incompatible"


def test_an_added_token_of_the_chat_format_needs_a_row_in_the_draft(tmp_path: Path) -> None:
    tokenizer = read(a_bpe(specials=["<|im_start|>", "<|im_end|>"]), tmp_path)
    chat = tokenizer.evolve(chat_template="{{ '<|im_start|>' + message + '<|im_end|>' }}")
    report = small_draft(chat, rows=320)
    assert "ids-beyond-vocabulary" in codes(report, "error")


def test_an_added_token_that_no_request_needs_only_warns(tmp_path: Path) -> None:
    # Gemma 3 1B has 262,144 rows and the tokenizer of its siblings, with an image token more.
    tokenizer = read(a_bpe(specials=["<image_soft_token>"]), tmp_path)
    report = small_draft(tokenizer, rows=320)
    assert report.verdict == "compatible"
    finding = found(report, "added-ids-beyond-vocabulary")
    assert finding.facts == {"side": "draft", "rows": 320, "ids": 1, "highest_id": 320}


def small_draft(tokenizer: TokenizerSpec, *, rows: int) -> CompatReport:
    draft = a_model(vocab_size=rows)
    return ask(
        target=a_member("target", tokenizer=tokenizer),
        draft=a_member("draft", model=draft, tokenizer=tokenizer),
    )


@pytest.mark.parametrize(
    ("rows", "tp", "padded"), [(151_552, 6, 151_554), (32_001, 2, 32_002), (151_851, 2, 151_852)]
)
def test_rows_that_tp_does_not_divide_are_padded(rows: int, tp: int, padded: int) -> None:
    model = a_model(vocab_size=rows, attention_heads=96, kv_heads=96)
    finding = found(
        ask(target=a_member("target", model=model, tp=tp), draft=None, method="ngram"),
        "vocabulary-padded-for-tp",
    )
    assert finding.facts["padded_rows"] == padded
    assert finding.severity == "warning"
    assert "never be sampled" in finding.message


def test_rows_that_tp_divides_are_not_mentioned() -> None:
    assert "vocabulary-padded-for-tp" not in codes(ask(target=a_member("target", tp=2)))
