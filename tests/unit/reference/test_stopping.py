from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_pairs import byte_tokenizer
from stopping import AnswerText, IncrementalText, Piece, StopRules
from tokenizers import Tokenizer, decoders, models

BYTES = byte_tokenizer()


def decode(ids: Sequence[int]) -> str:
    return str(BYTES.decode(list(ids)))


def encode(text: str) -> list[int]:
    return list(BYTES.encode(text).ids)


def an_answer(
    *stop_words: str, max_tokens: int = 1000, end_ids: frozenset[int] = frozenset()
) -> AnswerText:
    return AnswerText(decode, StopRules(max_tokens, end_ids, stop_words))


def push_all(answer: AnswerText, runs: Sequence[Sequence[int]]) -> str:
    text = "".join(answer.push(run).text for run in runs)
    return text + answer.close().text


def cut(ids: Sequence[int], borders: list[int]) -> list[Sequence[int]]:
    places = sorted({0, len(ids), *(b % (len(ids) + 1) for b in borders)})
    return [ids[a:b] for a, b in itertools.pairwise(places)]


@given(st.lists(st.integers(0, 257), max_size=30))
def test_pieces_join_to_the_text_of_all_ids_even_when_it_is_broken_utf8(ids: list[int]) -> None:
    text = IncrementalText(decode)
    assert "".join([*map(text.push, ids), text.flush()]) == decode(ids)


@given(st.text(max_size=12))
def test_no_piece_holds_half_a_character(written: str) -> None:
    text = IncrementalText(decode)
    pieces = [text.push(token) for token in encode(written)]
    assert not [p for p in pieces if "\ufffd" in p] or "\ufffd" in written


@given(
    st.lists(st.integers(0, 30), max_size=40),
    st.lists(st.integers(0, 100), max_size=6),
    st.integers(1, 40),
)
def test_an_answer_does_not_depend_on_how_its_tokens_arrive(
    ids: list[int], borders: list[int], max_tokens: int
) -> None:
    words = (decode([3, 4]), decode([5]), decode([2, 2, 9]))
    one_by_one, in_runs = (
        an_answer(*words, max_tokens=max_tokens, end_ids=frozenset({7})) for _ in range(2)
    )
    text = push_all(one_by_one, [[i] for i in ids])
    assert push_all(in_runs, cut(ids, borders)) == text
    assert in_runs.ids == one_by_one.ids
    assert in_runs.finish_reason == one_by_one.finish_reason
    assert in_runs.stop_reason == one_by_one.stop_reason


def test_a_stop_word_that_straddles_tokens_ends_the_text_before_it() -> None:
    answer = an_answer("END")
    pieces = [answer.push(encode(part)) for part in ("say E", "N", "D more")]
    assert [p.text for p in pieces] == ["say ", "", ""]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", "END")
    assert answer.ids == encode("say END")


def test_a_beginning_of_a_stop_word_is_shown_once_it_cannot_become_one() -> None:
    answer = an_answer("END")
    assert answer.push(encode("xEN")).text == "x"
    assert answer.push(encode("V")).text == "ENV"


def test_the_stop_word_that_starts_first_wins() -> None:
    answer = an_answer("cd", "bcd")
    assert answer.push(encode("abcd")).text == "a"
    assert answer.stop_reason == "bcd"


def test_tokens_after_the_end_of_a_run_are_not_used() -> None:
    answer = an_answer(end_ids=frozenset({1}))
    piece = answer.push([*encode("ab"), 1, *encode("cd")])
    assert piece == Piece("ab", 3, "stop", 1)
    assert answer.push(encode("more")) == Piece("", 0, "stop", 1)


def test_max_tokens_cuts_inside_a_run() -> None:
    answer = an_answer(max_tokens=3)
    assert answer.push(encode("abcdef")) == Piece("abc", 3, "length", None)
    assert answer.remaining == 0


def test_a_stop_word_wins_over_max_tokens_on_the_same_token() -> None:
    answer = an_answer("c", max_tokens=3)
    assert answer.push(encode("abc")) == Piece("ab", 3, "stop", "c")


def test_held_text_is_shown_at_the_end_of_the_answer() -> None:
    answer = an_answer("END", max_tokens=2)
    assert answer.push(encode("EN")) == Piece("EN", 2, "length", None)


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    answer = an_answer(max_tokens=1)
    assert answer.push(encode("é")[:1]).text == "\ufffd"


def test_cancelling_shows_what_was_held() -> None:
    answer = an_answer("END")
    answer.push(encode("xE"))
    assert answer.close() == Piece("E", 0, "cancelled", None)


def test_an_empty_stop_word_stops_nothing() -> None:
    assert an_answer("").push(encode("ab")).finish_reason is None


@pytest.mark.parametrize("ids", [[1, 2, 3], [0, 1], [1, 0, 2, 0, 0, 3]])
def test_tokenizers_that_strip_the_first_space_keep_the_others(ids: list[int]) -> None:
    tokenizer = Tokenizer(models.WordLevel({"</s>": 0, "▁a": 1, "▁b": 2, "▁c": 3}, "</s>"))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>"])
    text = IncrementalText(tokenizer.decode)
    assert "".join([*map(text.push, ids), text.flush()]) == tokenizer.decode(ids)
