"""preprocessing, postprocessing and the leaf as Triton serves them, run in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_in_process import chain_pair, engine_shape
from engine_plans import a_deployment
from fake_triton import Array, FakeTriton, InferenceResponse

TEXT = "aé😀bcdefgh"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain_pair(tmp_path_factory.mktemp("pair"), TEXT)


@pytest.fixture(scope="module")
def triton(pair: Path) -> FakeTriton:
    return engine_shape(a_deployment(pair, end_ids=(257, 256)))


@pytest.fixture(scope="module")
def classic(pair: Path) -> FakeTriton:
    return engine_shape(a_deployment(pair, method="none", end_ids=(257,)))


ENCODED = (
    "INPUT_ID",
    "REQUEST_INPUT_LEN",
    "REQUEST_OUTPUT_LEN",
    "STOP_WORDS_IDS",
    "BAD_WORDS_IDS",
    "OUT_END_ID",
    "OUT_PAD_ID",
)


def encode(triton: FakeTriton, **inputs: Any) -> dict[str, list[Any]]:  # noqa: ANN401
    response = triton.call("preprocessing", {"REQUEST_OUTPUT_LEN": 7, **inputs}, ENCODED)
    assert response.error() is None, response.error()
    return {name: array[0].tolist() for name, array in response.outputs.items()}


def i32(ids: list[int]) -> Array:
    return np.array([ids], dtype=np.int32)


def generate(triton: FakeTriton, ids: list[int], **inputs: Any) -> InferenceResponse:  # noqa: ANN401
    tensors = {"input_ids": i32(ids), "input_lengths": len(ids), "request_output_len": 3}
    outputs = ("output_ids", "sequence_length", "generation_logits", "kv_cache_reused_blocks")
    return triton.call("tensorrt_llm", {**tensors, **inputs}, outputs)


def test_prompts_and_word_lists_are_encoded(triton: FakeTriton) -> None:
    encoded = encode(triton, QUERY="abc", STOP_WORDS_DICT=["bc"], END_ID=5)
    _, b, c = encoded["INPUT_ID"]
    assert encoded["REQUEST_INPUT_LEN"] == [3]
    assert encoded["REQUEST_OUTPUT_LEN"] == [7]
    assert encoded["STOP_WORDS_IDS"] == [[b, c], [2, -1]]
    assert encoded["BAD_WORDS_IDS"] == [[0], [-1]]
    assert encoded["OUT_END_ID"] == [5]


def test_further_end_ids_of_the_target_travel_as_stop_words(triton: FakeTriton) -> None:
    encoded = encode(triton, QUERY="abc")
    assert encoded["OUT_END_ID"] == [257]
    assert encoded["STOP_WORDS_IDS"] == [[256], [1]]


@pytest.mark.parametrize(("query", "message"), [("", "empty"), (b"\xff", "not UTF-8")])
def test_a_prompt_that_cannot_be_encoded_is_an_error(
    triton: FakeTriton, query: object, message: str
) -> None:
    tensors = {"QUERY": query, "REQUEST_OUTPUT_LEN": 7}
    error = triton.call("preprocessing", tensors, ["INPUT_ID"]).error()
    assert message in str(error)


def test_rows_are_decoded_up_to_their_length(triton: FakeTriton) -> None:
    ids = encode(triton, QUERY="é😀")["INPUT_ID"]
    rows = np.array([[[*ids, 0, 0], [*ids[:2], 0, 0, 0, 0, 0, 0]]], dtype=np.int32)
    lengths = np.array([[6, 2]], dtype=np.int32)
    tensors = {"TOKENS_BATCH": rows, "SEQUENCE_LENGTH": lengths}
    output = triton.call("postprocessing", tensors, ["OUTPUT"]).outputs["OUTPUT"]
    assert [item.decode() for item in output[0]] == ["é😀", "é"]


def test_the_leaf_answers_new_tokens_and_only_what_was_asked_for(triton: FakeTriton) -> None:
    ids = encode(triton, QUERY="ab")["INPUT_ID"]
    response = generate(triton, ids)
    assert response.outputs["output_ids"].shape == (1, 1, 3)
    assert response.outputs["sequence_length"].tolist() == [[3]]
    assert "generation_logits" not in response.outputs


def test_the_leaf_can_answer_the_prompt_as_well(triton: FakeTriton) -> None:
    ids = encode(triton, QUERY="ab")["INPUT_ID"]
    response = generate(triton, ids, exclude_input_in_output=False)
    assert response.outputs["output_ids"][0, 0, :2].tolist() == ids
    assert response.outputs["sequence_length"].tolist() == [[5]]


def test_the_leaf_answers_logits_of_every_token(triton: FakeTriton) -> None:
    response = generate(triton, [1, 2], return_generation_logits=True)
    logits = response.outputs["generation_logits"]
    assert logits.shape == (1, 1, 3, 258)
    assert logits[0, 0].argmax(-1).tolist() == response.outputs["output_ids"][0, 0].tolist()


def test_the_leaf_tells_how_much_it_had_read_before(triton: FakeTriton) -> None:
    ids = [i % 200 for i in range(100)]
    generate(triton, ids)
    response = generate(triton, [*ids, 1, 2], return_perf_metrics=True)
    # 100 of 102 tokens: three whole blocks of 32.
    assert response.outputs["kv_cache_reused_blocks"].tolist() == [[3]]


def test_the_leaf_refuses_by_name_and_serves_the_next_call(triton: FakeTriton) -> None:
    refused = generate(triton, [1, 2], beam_width=2)
    assert "beam_width = 2 is not supported" in str(refused.error())
    assert generate(triton, [1, 2]).error() is None


def test_the_classic_leaf_streams_whole_characters(classic: FakeTriton) -> None:
    answer = stream(classic, streaming=True)
    chunks = [r.outputs["output_ids"][0, 0].tolist() for r in answer]
    texts = [decode(classic, ids) for ids in chunks]
    assert texts == ["é", "😀", "b", "c"]
    assert answer[-1].outputs["num_output_tokens"].item() == 8


def test_the_classic_leaf_answers_once_when_not_streaming(classic: FakeTriton) -> None:
    (response,) = stream(classic, streaming=False)
    assert decode(classic, response.outputs["output_ids"][0, 0].tolist()) == "é😀bc"


def test_the_classic_leaf_refuses_by_name(classic: FakeTriton) -> None:
    (response,) = stream(classic, streaming=True, beam_width=3)
    assert "beam_width = 3" in str(response.error())


def test_the_classic_leaf_stops_when_nobody_waits(classic: FakeTriton) -> None:
    answer = classic.ask("tensorrt_llm", a_stream(classic, streaming=True), cancel_after=2)
    assert str(answer.responses[-1].error()) == "the request was cancelled"
    assert len(answer.responses) == 3


def a_stream(classic: FakeTriton, **inputs: Any) -> dict[str, Any]:  # noqa: ANN401
    ids = encode(classic, QUERY="a")["INPUT_ID"]
    tensors = {"input_ids": i32(ids), "input_lengths": len(ids), "request_output_len": 8}
    return {**tensors, **inputs}


def stream(classic: FakeTriton, **inputs: Any) -> list[InferenceResponse]:  # noqa: ANN401
    return classic.ask("tensorrt_llm", a_stream(classic, **inputs)).responses


def decode(triton: FakeTriton, ids: list[int]) -> str:
    tensors = {"TOKENS_BATCH": np.array([[ids]], dtype=np.int32), "SEQUENCE_LENGTH": len(ids)}
    output = triton.call("postprocessing", tensors, ["OUTPUT"]).outputs["OUTPUT"]
    text: bytes = output.item()
    return text.decode()
