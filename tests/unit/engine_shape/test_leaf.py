from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from causal_lm import Session, common_prefix
from fields import Sampling
from leaf import Leaf
from leaf_calls import CALL

VOCABULARY = 12


class Counting(NamedTuple):
    """A model that says the next number, and how many tokens it was made to read."""

    read: list[int]
    vocab_size: int = VOCABULARY
    context_length: int = 100
    end_ids: frozenset[int] = frozenset()
    supports_rewind: bool = True

    def session(self) -> Session:
        return CountingSession(self.read)


class CountingSession:
    def __init__(self, read: list[int]) -> None:
        self.tokens: list[int] = []
        self._read = read

    @property
    def length(self) -> int:
        return len(self.tokens)

    def advance(self, ids: Sequence[int], *, keep: int = 0) -> torch.Tensor:
        self.tokens += ids
        self._read.append(len(ids))
        rows = [torch.eye(VOCABULARY)[(i + 1) % VOCABULARY] for i in ids]
        return 5 * torch.stack(rows)[-keep:]

    def shared(self, ids: Sequence[int]) -> int:
        return common_prefix(self.tokens, ids, len(ids) - 1)

    def rewind(self, length: int) -> None:
        del self.tokens[length:]


def a_leaf(slots: int = 1) -> Leaf:
    return Leaf(Counting([]), slots=slots)


def test_a_leaf_generates_the_tokens_asked_for() -> None:
    assert a_leaf().answer(CALL).ids == [4, 5, 6, 7]


def test_generation_ends_with_the_end_id() -> None:
    assert a_leaf().answer(replace(CALL, end_id=5)).ids == [4, 5]


def test_generation_ends_with_a_stop_sequence() -> None:
    assert a_leaf().answer(replace(CALL, stop_sequences=[[9], [5, 6]])).ids == [4, 5, 6]


def test_verification_returns_the_accepted_tokens_and_the_targets_own() -> None:
    answer = a_leaf().answer(replace(CALL, draft_ids=[4, 5, 9]))
    assert answer.ids == [4, 5, 6]
    assert (answer.drafted, answer.accepted) == (3, 2)


def test_a_draft_that_is_right_gets_the_bonus_token() -> None:
    answer = a_leaf().answer(replace(CALL, draft_ids=[4, 5, 6]))
    assert answer.ids == [4, 5, 6, 7]
    assert answer.accepted == 3


def test_verification_ends_with_an_end_id_that_was_accepted() -> None:
    answer = a_leaf().answer(replace(CALL, draft_ids=[4, 5, 6], end_id=5))
    assert answer.ids == [4, 5]
    assert answer.accepted == 2


def test_a_following_call_reads_new_tokens_only() -> None:
    model = Counting([])
    leaf = Leaf(model, slots=1)
    leaf.answer(replace(CALL, ids=[1, 2, 3], draft_ids=[4, 5, 9]))
    answer = leaf.answer(replace(CALL, ids=[1, 2, 3, 4, 5, 6], draft_ids=[7, 8, 9]))
    # Prompt and draft; then the target's own 6, and the next draft.
    assert model.read == [6, 4]
    assert answer.reused == 5


def test_calls_of_two_requests_keep_a_slot_each() -> None:
    model = Counting([])
    leaf = Leaf(model, slots=2)
    for last in (3, 4, 5):
        leaf.answer(replace(CALL, ids=[1, *range(2, last + 1)], output_len=1))
        leaf.answer(replace(CALL, ids=[9, *range(2, last + 1)], output_len=1))
    assert model.read == [3, 3, 1, 1, 1, 1]


def test_logits_are_those_that_chose_the_tokens() -> None:
    logits = a_leaf().answer(replace(CALL, return_logits=True)).logits
    assert logits is not None
    assert logits.argmax(-1).tolist() == [4, 5, 6, 7]


def test_sampling_repeats_with_its_seed() -> None:
    def drawn(seed: int) -> list[int]:
        sampling = Sampling(temperature=4.0, seed=seed)
        return a_leaf().answer(replace(CALL, output_len=40, sampling=sampling)).ids

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
