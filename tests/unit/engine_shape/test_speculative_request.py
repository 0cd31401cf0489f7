from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_triton import as_array
from fields import Fields, InputError, Sampling
from speculative_request import GenerationRequest, Settings, read_request

SETTINGS = Settings(draft_length=4, max_draft_length=8, end_ids=frozenset({2, 3}))


def read(settings: Settings = SETTINGS, /, **inputs: Any) -> GenerationRequest:  # noqa: ANN401
    values = {"text_input": "hello", "max_tokens": 5, **inputs}
    kinds = {str: np.object_, list: np.object_, float: np.float32, bool: np.bool_, int: np.int64}
    arrays = {name: as_array(v, kinds.get(type(v), np.object_)) for name, v in values.items()}
    return read_request(Fields(arrays), settings)


def test_absent_tensors_take_the_deployments_defaults() -> None:
    request = read()
    assert request.draft_length == 4
    assert request.end_ids == {2, 3}
    assert request.sampling == Sampling()
    assert (request.stream, request.echo, request.stop_words) == (False, False, ())


@pytest.mark.parametrize("value", [0, 1, 8])
def test_a_request_chooses_its_draft_length(value: int) -> None:
    assert read(num_draft_tokens=value).draft_length == value


@pytest.mark.parametrize("value", [-1, 9])
def test_a_draft_length_out_of_range_is_refused_by_name(value: int) -> None:
    with pytest.raises(InputError, match="num_draft_tokens"):
        read(num_draft_tokens=value)


@pytest.mark.parametrize("value", [0, -3])
def test_an_answer_of_no_tokens_is_refused(value: int) -> None:
    with pytest.raises(InputError, match=f"max_tokens must be at least 1, not {value}"):
        read(max_tokens=value)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InputError, match="text_input is empty"):
        read(text_input="")


def test_a_prompt_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InputError, match="text_input is not UTF-8"):
        read(text_input=np.array([[b"\xff"]], dtype=np.object_))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5])
@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_numbers_out_of_range_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        read(**{name: value})


def test_several_prompts_in_one_request_are_refused() -> None:
    two = np.array([[b"a"], [b"b"]], dtype=np.object_)
    with pytest.raises(InputError, match="text_input holds 2 rows"):
        read(text_input=two)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_width", 2),
        ("repetition_penalty", 1.1),
        ("presence_penalty", 0.5),
        ("frequency_penalty", 0.5),
        ("min_length", 5),
        ("num_return_sequences", 2),
        ("return_log_probs", True),
        ("return_context_logits", True),
        ("return_generation_logits", True),
        ("bad_words", ["x"]),
        ("lora_task_id", 1),
        ("guided_decoding_guide", "{}"),
        ("embedding_bias_words", ["x"]),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        read(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_width", 1),
        ("repetition_penalty", 1.0),
        ("return_log_probs", False),
        ("min_length", 1),
    ],
)
def test_values_that_ask_for_nothing_are_accepted(name: str, value: object) -> None:
    assert read(**{name: value}) == read()


def test_a_given_end_id_replaces_the_targets() -> None:
    assert read(end_id=9).end_ids == {9}
    assert read(end_id=-1).end_ids == frozenset()


def test_a_filter_without_a_temperature_means_temperature_one() -> None:
    assert read(top_k=8).sampling == Sampling(temperature=1.0, top_k=8)
    assert read(top_p=0.5).sampling.temperature == 1.0
    assert read(top_k=1).sampling.greedy


def test_draft_logits_are_used_for_sampling_unless_switched_off() -> None:
    assert read(temperature=0.8).use_draft_logits
    assert not read(temperature=0.8, use_draft_logits=False).use_draft_logits
    assert not read(use_draft_logits=True).use_draft_logits


def test_where_draft_logits_do_not_fit_tokens_are_compared_unless_asked_otherwise() -> None:
    narrow = replace(SETTINGS, use_draft_logits=False)
    assert not read(narrow, temperature=0.8).use_draft_logits
    assert read(narrow, temperature=0.8, use_draft_logits=True).use_draft_logits


def test_a_seed_keeps_all_its_64_bits() -> None:
    seed = np.array([[(1 << 64) - 1]], dtype=np.uint64)
    assert read(random_seed=seed).sampling.seed == (1 << 64) - 1
