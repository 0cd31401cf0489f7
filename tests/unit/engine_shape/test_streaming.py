from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from causal_lm import load_model
from chain_models import write_chain
from leaf import Leaf
from leaf_calls import CALL
from leaf_request import LeafCall
from streaming import CancelledError, Chunk, PlainIds, Streamer, WholeCharacters
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

# No byte twice: two bytes, then four, then a word.
TEXT = "aé😀bcd"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chain(tmp_path_factory.mktemp("chain") / "model", TEXT)


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model / "tokenizer.json"))


class Receiver:
    def __init__(self, *, cancel_after: int | None = None) -> None:
        self.chunks: list[Chunk] = []
        self.error: Exception | None = None
        self.done = threading.Event()
        self._cancel_after = cancel_after

    def is_cancelled(self) -> bool:
        return len(self.chunks) == self._cancel_after

    def send(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        if chunk.last:
            self.done.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()


@pytest.fixture
def streamer(model: Path, tokenizer: Tokenizer) -> Iterator[Streamer]:
    leaf = Leaf(load_model(model, dtype="fp32", lean=True), slots=2)
    made = Streamer(leaf, slots=2, decoder=lambda call: WholeCharacters(tokenizer, call))
    yield made
    made.close()


def call(tokenizer: Tokenizer, **changes: Any) -> LeafCall:  # noqa: ANN401
    ids = tokenizer.encode("a").ids
    return replace(CALL, ids=ids, streaming=True, **changes)


def served(streamer: Streamer, asked: LeafCall, receiver: Receiver | None = None) -> Receiver:
    receiver = receiver or Receiver()
    streamer.submit(asked, receiver)
    assert receiver.done.wait(30)
    return receiver


def texts(receiver: Receiver, tokenizer: Tokenizer) -> list[str]:
    """Decode each chunk alone, as postprocessing does."""
    return [tokenizer.decode(chunk.ids) for chunk in receiver.chunks]


def test_every_chunk_holds_whole_characters(streamer: Streamer, tokenizer: Tokenizer) -> None:
    receiver = served(streamer, call(tokenizer, output_len=10))
    assert texts(receiver, tokenizer) == ["é", "😀", "b", "c", "d", "a"]


def test_a_chunk_says_how_many_tokens_were_generated(
    streamer: Streamer, tokenizer: Tokenizer
) -> None:
    receiver = served(streamer, call(tokenizer, output_len=8))
    assert [chunk.num_output_tokens for chunk in receiver.chunks] == [2, 6, 7, 8]
    assert [chunk.last for chunk in receiver.chunks] == [False, False, False, True]


def test_a_character_that_is_cut_off_by_the_length_ends_the_answer(
    streamer: Streamer, tokenizer: Tokenizer
) -> None:
    receiver = served(streamer, call(tokenizer, output_len=4))
    assert "".join(texts(receiver, tokenizer)) == "é\N{REPLACEMENT CHARACTER}"
    assert receiver.chunks[-1].num_output_tokens == 4


def test_a_stop_word_is_not_shown_and_nothing_that_could_begin_it(
    streamer: Streamer, tokenizer: Tokenizer
) -> None:
    stop = tokenizer.encode("cd").ids
    receiver = served(streamer, call(tokenizer, output_len=30, stop_sequences=[stop]))
    assert "".join(texts(receiver, tokenizer)) == "é😀b"
    assert receiver.chunks[-1].last
    assert receiver.chunks[-1].num_output_tokens == 9


def test_an_end_id_ends_the_answer(streamer: Streamer, tokenizer: Tokenizer) -> None:
    (end_id,) = tokenizer.encode("c").ids
    receiver = served(streamer, call(tokenizer, output_len=30, end_id=end_id))
    assert receiver.chunks[-1].num_output_tokens == 8


def test_a_cancelled_answer_stops_and_frees_its_slot(
    streamer: Streamer, tokenizer: Tokenizer
) -> None:
    for _ in range(3):
        receiver = served(streamer, call(tokenizer, output_len=300), Receiver(cancel_after=2))
        assert isinstance(receiver.error, CancelledError)
        assert len(receiver.chunks) == 2


def test_answers_are_made_side_by_side(streamer: Streamer, tokenizer: Tokenizer) -> None:
    long, short = Receiver(), Receiver()
    streamer.submit(call(tokenizer, output_len=300), long)
    streamer.submit(call(tokenizer, output_len=3), short)
    assert short.done.wait(30)
    assert not long.done.is_set()
    assert long.done.wait(60)


def test_more_answers_than_slots_wait_for_their_turn(
    streamer: Streamer, tokenizer: Tokenizer
) -> None:
    receivers = [Receiver() for _ in range(6)]
    for receiver in receivers:
        streamer.submit(call(tokenizer, output_len=20), receiver)
    for receiver in receivers:
        assert receiver.done.wait(30)
        assert receiver.chunks[-1].num_output_tokens == 20


def test_a_failing_answer_is_an_error_and_the_next_one_is_served(
    streamer: Streamer, tokenizer: Tokenizer
) -> None:
    broken = served(streamer, call(tokenizer, output_len=3, stop_sequences=[None]))
    assert broken.error is not None
    assert served(streamer, call(tokenizer, output_len=3)).error is None


def test_without_a_tokenizer_every_id_is_shown_at_once() -> None:
    ids = PlainIds()
    assert [ids.push(t, last=t == 3) for t in (1, 2, 3)] == [[1], [2], [3]]


def test_a_stop_word_inside_a_token_is_cut_out_of_it() -> None:
    tokenizer = words_tokenizer()
    stop = tokenizer.encode("b").ids
    ids = WholeCharacters(tokenizer, replace(CALL, output_len=9, stop_sequences=[stop]))
    shown = [tokenizer.decode(ids.push(t, last=False)) for t in tokenizer.encode("a abc").ids]
    assert "".join(shown) == "a a"
    assert ids.finished


def test_a_space_that_decoding_alone_drops_is_put_back() -> None:
    tokenizer = sentencepiece_tokenizer()
    ids = WholeCharacters(tokenizer, replace(CALL, output_len=9))
    shown = [tokenizer.decode(ids.push(t, last=False)) for t in tokenizer.encode("abc abc ab").ids]
    assert shown == ["abc", " abc", " ab"]


def sentencepiece_tokenizer() -> Tokenizer:
    """A tokenizer in the manner of Llama 2: spaces as marks, the first one dropped."""
    pieces = ["<unk>", "▁", "a", "b", "c", "ab", "▁ab", "▁abc"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[("a", "b"), ("▁", "ab"), ("▁ab", "c")],
            unk_token="<unk>",
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def words_tokenizer() -> Tokenizer:
    """A tokenizer with ``abc`` and a word of it after a space as single tokens."""
    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("a", "b"), ("ab", "c"), ("Ġ", "abc"), ("Ġ", "Ġ")]
    merged = {a + b: len(alphabet) + i for i, (a, b) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(vocab={**alphabet, **merged}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
