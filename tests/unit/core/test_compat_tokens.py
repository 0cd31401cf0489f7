"""Tokens are compared by their maps, rules and encodings, never by sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pairs import a_member, a_model, a_question, ask, codes, found, read
from tokenizer_files import a_bpe, a_word_list, numbered, with_bos
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from specdeploy.core.compat import CompatReport
from specdeploy.core.models import SpecialIds
from specdeploy.core.tokenizers import TokenizerSpec

Compare = Callable[[Tokenizer, Tokenizer], CompatReport]


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    """Compare two tokenizers through their files, in a pair with rows enough for both."""

    def run(target: Tokenizer, draft: Tokenizer) -> CompatReport:
        return pair_of(read(target, tmp_path / "target"), read(draft, tmp_path / "draft"))

    return run


def pair_of(target: TokenizerSpec, draft: TokenizerSpec, *, rows: int = 400_000) -> CompatReport:
    big, small = (a_model(vocab_size=rows, parameters=size) for size in (10_000_000, 1_000_000))
    return ask(
        target=a_member("target", model=big, tokenizer=target),
        draft=a_member("draft", model=small, tokenizer=draft),
    )


def test_equal_tokenizers_leave_nothing_to_say(compare: Compare) -> None:
    report = compare(a_bpe(), a_bpe())
    assert (report.verdict, report.tokens, report.findings) == ("compatible", "equal", [])


def test_base_and_added_tokens_are_counted_apart(tmp_path: Path) -> None:
    specials = [f"<|reserved_special_token_{i}|>" for i in range(256)]
    tokenizer = read(a_word_list(numbered(128_000), specials=specials), tmp_path)
    facts = tokenizer.facts
    assert (facts.size, facts.base_size, facts.added_size) == (128_256, 128_000, 256)
    assert facts.highest_id == 128_255
    report = pair_of(tokenizer, tokenizer, rows=128_256)
    assert report.findings == []


def test_two_swapped_words_are_counted_and_the_first_is_shown(compare: Compare) -> None:
    words = numbered(200_000)
    swapped = [*words]
    swapped[5000], swapped[5001] = words[5001], words[5000]
    report = compare(a_word_list(words), a_word_list(swapped))
    finding = found(report, "tokenizer-ids-differ")
    assert report.verdict == "incompatible"
    assert report.tokens == "differ"
    assert finding.facts == {
        "differing_ids": 2,
        "differing_special_ids": 0,
        "first_id": 5000,
        "target_text": "w5000",
        "draft_text": "w5001",
    }
    assert "5000" in finding.message
    assert "'w5001'" in finding.message


def test_other_sizes_are_named_with_both_numbers(compare: Compare) -> None:
    report = compare(a_word_list(numbered(152_064)), a_word_list(numbered(32_002)))
    finding = found(report, "tokenizer-sizes-differ")
    assert (finding.facts["target_size"], finding.facts["draft_size"]) == (152_064, 32_002)
    assert finding.severity == "error"


def test_another_kind_of_tokenizer_is_named(compare: Compare) -> None:
    report = compare(a_bpe(), a_word_list(numbered(320)))
    finding = found(report, "tokenizer-types-differ")
    assert finding.facts == {"target_kind": "BPE", "draft_kind": "WordLevel"}


def test_the_same_architecture_is_no_evidence(tmp_path: Path) -> None:
    llama3 = read(a_bpe(vocab_size=400), tmp_path / "llama3")
    tinyllama = read(a_word_list(numbered(300)), tmp_path / "tinyllama")
    target = a_model(vocab_size=512, special_ids=SpecialIds(bos=400, eos=[401]))
    draft = a_model(vocab_size=300, special_ids=SpecialIds(bos=1, eos=[2]))
    report = ask(
        target=a_member("target", model=target, tokenizer=llama3),
        draft=a_member("draft", model=draft, tokenizer=tinyllama),
    )
    assert codes(report, "error") >= {
        "tokenizer-types-differ",
        "tokenizer-sizes-differ",
        "tokenizer-ids-differ",
        "ids-beyond-vocabulary",
    }
    assert codes(report, "warning") >= {"bos-differs", "eos-differs"}


def test_swapped_special_tokens_are_listed_apart_from_words(compare: Compare) -> None:
    report = compare(a_bpe(specials=["<|a|>", "<|b|>"]), a_bpe(specials=["<|b|>", "<|a|>"]))
    finding = found(report, "added-tokens-differ")
    assert finding.severity == "error"
    assert finding.facts["target_texts"] == ["<|a|>", "<|b|>"]
    assert finding.facts["draft_texts"] == ["<|b|>", "<|a|>"]
    assert "tokenizer-ids-differ" not in codes(report)


def test_an_added_token_with_another_meaning_is_an_error(compare: Compare) -> None:
    report = compare(a_bpe(specials=["<|tool|>"]), a_bpe(specials=["<|user|>"]))
    assert codes(report, "error") == {"added-tokens-differ"}


def test_a_reserved_token_that_got_a_name_is_a_warning(compare: Compare) -> None:
    target = a_bpe(specials=["<|begin|>", "<|reserved_special_token_3|>"])
    report = compare(target, a_bpe(specials=["<|begin|>", "<|eom_id|>"]))
    assert codes(report) == {"added-tokens-renamed"}
    assert report.verdict == "compatible"


def test_a_name_that_moved_to_a_reserved_slot_is_an_error(compare: Compare) -> None:
    target = a_bpe(specials=["<|eot|>", "<|reserved_0|>"])
    report = compare(target, a_bpe(specials=["<|reserved_0|>", "<|eot|>"]))
    assert codes(report, "error") == {"added-tokens-differ"}


def test_an_added_token_at_another_id_is_an_error(compare: Compare) -> None:
    report = compare(a_bpe(specials=["<|a|>", "<|b|>"]), a_bpe(specials=["<|b|>"]))
    assert "added-tokens-differ" in codes(report, "error")


def test_added_tokens_that_the_draft_lacks_are_a_warning(compare: Compare) -> None:
    target = a_bpe(specials=["<|end|>", "<tool_call>", "</tool_call>"])
    report = compare(target, a_bpe(specials=["<|end|>"]))
    finding = found(report, "added-tokens-missing")
    assert finding.facts["only_target"] == [321, 322]
    assert finding.facts["only_draft"] == []
    assert (report.verdict, report.tokens) == ("compatible", "equal")


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (normalizers.NFC(), normalizers.NFKC()),
        (normalizers.NFC(), None),
        (None, normalizers.Lowercase()),
        (None, normalizers.StripAccents()),
    ],
    ids=["nfkc", "none", "lowercase", "strip-accents"],
)
def test_another_normalizer_shows_in_the_probe_texts(
    compare: Compare,
    mine: normalizers.Normalizer | None,
    theirs: normalizers.Normalizer | None,
) -> None:
    target, draft = a_bpe(), a_bpe()
    for tokenizer, normalizer in ((target, mine), (draft, theirs)):
        if normalizer is not None:
            tokenizer.normalizer = normalizer
    report = compare(target, draft)
    finding = found(report, "tokenizer-encodings-differ")
    assert finding.facts["rules"] == ["normalizer"]
    assert finding.facts["target_ids"] != finding.facts["draft_ids"]
    assert report.tokens == "differ"


@pytest.mark.parametrize(
    "theirs",
    [
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(use_regex=True),
            ]
        ),
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"\p{L}{1,2}|\s+|."), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
    ],
    ids=["prefix-space", "single-digits", "other-pattern"],
)
def test_another_pre_tokenizer_shows_in_the_probe_texts(
    compare: Compare, theirs: pre_tokenizers.PreTokenizer
) -> None:
    draft = a_bpe()
    draft.pre_tokenizer = theirs
    report = compare(a_bpe(), draft)
    assert found(report, "tokenizer-encodings-differ").facts["rules"] == ["pre_tokenizer"]


def test_other_merges_over_the_same_ids_show_in_the_probe_texts(compare: Compare) -> None:
    vocabulary = {text: i for i, text in enumerate(["a", "b", "c", "ab", "bc"])}
    target = Tokenizer(models.BPE(vocabulary, [("a", "b"), ("b", "c")]))
    draft = Tokenizer(models.BPE(vocabulary, [("b", "c"), ("a", "b")]))
    report = compare(target, draft)
    assert "tokenizer-encodings-differ" in codes(report, "error")


def test_lowercasing_shows_in_a_vocabulary_that_knows_no_probe_text(compare: Compare) -> None:
    target, draft = a_word_list(numbered(50)), a_word_list(numbered(50))
    draft.normalizer = normalizers.Lowercase()
    assert "tokenizer-encodings-differ" in codes(compare(target, draft))


def test_rules_written_otherwise_with_the_same_effect_are_a_warning(compare: Compare) -> None:
    target, draft = a_bpe(), a_bpe()
    target.normalizer = normalizers.NFC()
    draft.normalizer = normalizers.Sequence([normalizers.NFC()])
    report = compare(target, draft)
    assert codes(report) == {"tokenizer-rules-differ"}
    assert found(report, "tokenizer-rules-differ").facts["rules"] == ["normalizer"]
    assert report.tokens == "equal"


def test_another_decoder_is_for_information(compare: Compare) -> None:
    draft = a_bpe()
    draft.decoder = decoders.Fuse()
    assert codes(compare(a_bpe(), draft)) == {"tokenizer-decoders-differ"}


def test_a_leading_bos_on_one_side_is_a_warning(compare: Compare) -> None:
    report = compare(with_bos(a_bpe(), "<|endoftext|>"), a_bpe())
    finding = found(report, "prompt-framing-differs")
    assert finding.severity == "warning"
    assert finding.facts["target_ids"] == [320, *_ids(finding.facts["draft_ids"])]


def _ids(value: object) -> list[int]:
    assert isinstance(value, list)
    return value


def test_an_added_token_that_swallows_spaces_on_one_side_is_a_warning(compare: Compare) -> None:
    target, draft = a_bpe(specials=[]), a_bpe(specials=[])
    target.add_special_tokens([AddedToken("<|x|>", special=True)])
    draft.add_special_tokens([AddedToken("<|x|>", special=True, rstrip=True)])
    report = compare(target, draft)
    assert found(report, "added-tokens-handling-differs").facts["tokens"] == ["<|x|>"]
    assert report.verdict == "compatible"


def test_a_special_token_in_the_text_is_probed(tmp_path: Path) -> None:
    tokenizer = read(a_bpe(), tmp_path)
    around = tokenizer.added_encodings["<|im_end|>"]
    assert around is not None
    assert tokenizer.tokens["<|im_end|>"] in around


def test_missing_files_in_a_plan_are_a_warning_and_claim_nothing() -> None:
    report = ask()
    assert report.tokens == "not-compared"
    assert report.verdict == "compatible"
    assert [f.severity for f in report.findings if f.code == "tokenizer-missing"] == ["warning"] * 2


def test_missing_files_beside_weights_are_an_error() -> None:
    report = ask(draft=a_member("draft", weights="digest"))
    severities = {
        f.facts["side"]: f.severity for f in report.findings if f.code == "tokenizer-missing"
    }
    assert severities == {"target": "warning", "draft": "error"}
    assert report.verdict == "incompatible"


@pytest.mark.parametrize("method", ["ngram", "none"])
def test_a_method_without_a_draft_compares_no_tokens(method: str) -> None:
    report = ask(draft=None, method=method)
    assert report.tokens == "not-needed"
    assert report.findings == []


def test_token_ids_given_twice_by_the_files_are_a_warning(tmp_path: Path) -> None:
    tokenizer = read(a_bpe(), tmp_path)
    question = a_question(
        target=a_member("target", tokenizer=tokenizer.evolve(conflicts=["<|im_end|>"])),
        draft=a_member("draft", tokenizer=tokenizer),
    )
    report = ask(target=question.target, draft=question.draft)
    assert found(report, "tokenizer-files-disagree").facts["side"] == "target"
