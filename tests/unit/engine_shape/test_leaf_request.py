from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fields import Fields, InputError, Sampling
from leaf_request import LeafCall, LeafLimits, read_call

LIMITS = LeafLimits(max_seq_len=20, vocab_size=10, decoupled=False, exclude_input=True)


def i32(*values: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array([values], dtype=np.int32)


def read(limits: LeafLimits = LIMITS, /, **tensors: Any) -> LeafCall:  # noqa: ANN401
    needed = {"input_ids": i32(1, 2, 3), "input_lengths": i32(3), "request_output_len": i32(4)}
    return read_call(Fields({**needed, **tensors}), limits)


def test_a_call_with_the_needed_tensors_is_greedy_generation() -> None:
    call = read()
    assert (call.ids, call.output_len, call.draft_ids) == ([1, 2, 3], 4, [])
    assert call.sampling == Sampling()
    assert call.end_id is None


def test_padding_after_the_stated_length_is_not_read() -> None:
    assert read(input_ids=i32(1, 2, 3, 0, 0)).ids == [1, 2, 3]


def test_verification_asks_for_one_token_more_than_is_drafted() -> None:
    assert read(draft_input_ids=i32(4, 5, 6)).draft_ids == [4, 5, 6]
    with pytest.raises(InputError, match=r"request_output_len is 4; with 2 tokens.* must be 3"):
        read(draft_input_ids=i32(4, 5))


@pytest.mark.parametrize("name", ["input_ids", "draft_input_ids"])
@pytest.mark.parametrize("bad", [-1, 10])
def test_ids_outside_the_vocabulary_are_refused_by_name(name: str, bad: int) -> None:
    with pytest.raises(InputError, match=f"{name} holds an id outside 0..9"):
        read(**{name: i32(1, 2, bad)})


def test_draft_logits_must_fit_the_drafted_tokens() -> None:
    logits = np.zeros((1, 3, 9), dtype=np.float32)
    with pytest.raises(InputError, match=r"draft_logits has the shape \[3, 9\], not \[3, 10\]"):
        read(draft_input_ids=i32(4, 5, 6), draft_logits=logits)


def test_draft_logits_that_are_not_numbers_are_refused() -> None:
    logits = np.full((1, 3, 10), np.nan, dtype=np.float32)
    with pytest.raises(InputError, match="draft_logits holds NaN"):
        read(draft_input_ids=i32(4, 5, 6), draft_logits=logits)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_width", 2),
        ("num_return_sequences", 3),
        ("return_log_probs", 1),
        ("return_context_logits", 1),
        ("lora_task_id", 1),
        ("draft_acceptance_threshold", 1),
        ("lookahead_window_size", 1),
        ("embedding_bias", 1),
        ("prompt_embedding_table", 1),
        ("runtime_top_p_decay", 1),
        ("retention_decode_priority", 1),
    ],
)
def test_what_the_leaf_cannot_honour_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(InputError, match=name):
        read(**{name: i32(value)})


def test_penalties_are_refused_unless_neutral() -> None:
    one = np.array([[1.0]], dtype=np.float32)
    assert read(repetition_penalty=one).output_len == 4
    with pytest.raises(InputError, match=r"presence_penalty = 1 is not supported.*; use 0"):
        read(presence_penalty=one)


def test_bad_words_are_refused_but_an_empty_list_is_none() -> None:
    empty = np.array([[[0], [-1]]], dtype=np.int32)
    assert read(bad_words_list=empty).output_len == 4
    with pytest.raises(InputError, match="bad_words_list"):
        read(bad_words_list=np.array([[[5], [1]]], dtype=np.int32))


def test_an_answer_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(InputError, match="input_ids has 3 tokens and request_output_len is 18"):
        read(request_output_len=i32(18))


def test_streaming_needs_a_decoupled_model() -> None:
    on = np.array([[True]])
    with pytest.raises(InputError, match="streaming"):
        read(streaming=on)
    decoupled = LeafLimits(max_seq_len=20, vocab_size=10, decoupled=True, exclude_input=True)
    assert read(decoupled, streaming=on).streaming


def test_a_least_length_is_kept_where_nothing_ends_early_and_refused_elsewhere() -> None:
    assert read(min_length=i32(4)).output_len == 4
    with pytest.raises(InputError, match="min_length"):
        read(min_length=i32(4), end_id=i32(2))
