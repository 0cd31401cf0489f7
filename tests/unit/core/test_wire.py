from __future__ import annotations

import pytest

from specdeploy.core.generation import Counts, GenerationOptions
from specdeploy.core.tensor_bytes import TensorValue
from specdeploy.core.wire import (
    ModelInterface,
    UnsupportedOptionError,
    read_counts,
    read_text,
    request_tensors,
    requested_outputs,
)


def interface(*names: str, batched: bool = False) -> ModelInterface:
    inputs = {"text_input": "BYTES", **dict.fromkeys(names, "INT32")}
    return ModelInterface(name="m", inputs=inputs, outputs=["text_output"], batched=batched)


def sent(model: ModelInterface, options: GenerationOptions) -> dict[str, list[TensorValue]]:
    return {tensor.name: tensor.values for tensor in request_tensors(model, "p", options)}


@pytest.mark.parametrize("name", ["random_seed", "seed", "sampling_param_seed"])
def test_the_seed_goes_to_whichever_input_the_model_has(name: str) -> None:
    assert sent(interface("max_tokens", name), GenerationOptions(seed=9))[name] == [9]


@pytest.mark.parametrize(
    "switch", ["exclude_input_in_output", "sampling_param_exclude_input_from_output"]
)
def test_a_model_that_can_repeat_the_prompt_is_told_not_to(switch: str) -> None:
    assert sent(interface("max_tokens", switch), GenerationOptions())[switch] == [True]


def test_options_left_open_are_left_to_the_server() -> None:
    model = interface("max_tokens", "temperature", "top_k", "num_draft_tokens", "stop_words")
    assert sent(model, GenerationOptions(max_tokens=3)).keys() == {"text_input", "max_tokens"}


def test_temperature_zero_is_said_and_not_taken_for_unset() -> None:
    model = interface("max_tokens", "temperature", "num_draft_tokens", "end_id")
    options = GenerationOptions(temperature=0.0, draft_length=0, end_id=0)
    values = sent(model, options)
    assert values["temperature"] == [0.0]
    assert values["num_draft_tokens"] == values["end_id"] == [0]


def test_a_model_without_a_streaming_switch_is_asked_all_the_same() -> None:
    assert sent(interface("max_tokens"), GenerationOptions()).keys() == {
        "text_input",
        "max_tokens",
    }


def test_an_option_without_an_input_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOptionError, match="m has no input for top_k"):
        sent(interface("max_tokens"), GenerationOptions(top_k=1))


def test_a_model_that_takes_no_text_is_refused() -> None:
    leaf = ModelInterface(name="leaf", inputs={"input_ids": "INT32"}, outputs=[], batched=False)
    with pytest.raises(UnsupportedOptionError, match="leaf takes tokens and not text"):
        sent(leaf, GenerationOptions())


@pytest.mark.parametrize(("batched", "shape"), [(False, [1]), (True, [1, 1])])
def test_a_batched_model_gets_a_batch_of_one(*, batched: bool, shape: list[int]) -> None:
    tensors = request_tensors(interface("max_tokens", batched=batched), "p", GenerationOptions())
    assert {tuple(tensor.shape) for tensor in tensors} == {tuple(shape)}


def test_only_outputs_that_the_model_has_are_requested() -> None:
    model = interface().evolve(outputs=["text_output", "num_spec_steps", "other"])
    assert requested_outputs(model) == ["text_output", "num_spec_steps"]


@pytest.mark.parametrize("outputs", [{}, {"text_output": []}])
def test_a_missing_or_zero_length_text_is_empty(outputs: dict[str, list[TensorValue]]) -> None:
    assert read_text(outputs) == b""


def test_counts_are_read_by_their_upstream_names() -> None:
    outputs: dict[str, list[TensorValue]] = {
        "num_output_tokens": [5],
        "num_spec_steps": [2],
        "total_draft_tokens": [8],
        "total_accepted_draft_tokens": [3],
    }
    assert read_counts(outputs) == Counts(
        output_tokens=5, steps=2, drafted_tokens=8, accepted_tokens=3
    )


@pytest.mark.parametrize(("value", "count"), [(b"3", 3), (b"3.0", 3), (3.0, 3), (b"none", None)])
def test_counts_may_be_strings(value: TensorValue, count: int | None) -> None:
    assert read_counts({"total_draft_tokens": [value]}).drafted_tokens == count
