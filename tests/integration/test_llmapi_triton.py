"""The llmapi shape on a real Triton server, with the shipped pair."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from llmapi_support import a_plan, write_repository
from servers import running_server

from specdeploy.client import Client, GenerationOptions
from specdeploy.core.serving import ServerRecord
from specdeploy.errors import ServerError

pytestmark = pytest.mark.triton

PAIR = Path(__file__).parents[2] / "examples/tiny-pair"
MODEL = "tensorrt_llm"


@pytest.fixture(scope="module", params=["draft_target", "ngram"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerRecord]:
    """A server of the shipped pair, one per method."""
    repository = tmp_path_factory.mktemp("repository")
    write_repository(repository, a_plan(PAIR, method=request.param))
    with running_server(repository, stop_at_once=True) as record:
        yield record


@pytest.fixture
def client(server: ServerRecord) -> Iterator[Client]:
    with Client(server.endpoints.grpc, timeout_s=60) as client:
        yield client


def prompts(count: int) -> list[str]:
    files = sorted((PAIR / "held_out").iterdir())[:count]
    return [file.read_text()[200:400] for file in files]


def infer(
    server: ServerRecord, inputs: Mapping[str, np.ndarray[Any, Any]], request_id: str = ""
) -> list[Any]:
    """Send one raw request; return every response, an exception in place of an error."""
    responses: list[Any] = []
    tensors = []
    for name, value in inputs.items():
        tensor = triton.InferInput(name, list(value.shape), _datatype(value))
        tensor.set_data_from_numpy(value)
        tensors.append(tensor)
    with triton.InferenceServerClient(server.endpoints.grpc) as connection:
        connection.start_stream(lambda result, error: responses.append(error or result))
        connection.async_stream_infer(
            MODEL, tensors, request_id=request_id, enable_empty_final_response=True
        )
        wait_for(lambda: responses and _is_last(responses[-1]))
        connection.stop_stream()
    return responses


def _datatype(value: np.ndarray[Any, Any]) -> str:
    return {"O": "BYTES", "i": "INT32", "f": "FP32", "b": "BOOL", "u": "UINT64"}[value.dtype.kind]


def _is_last(response: Any) -> bool:  # noqa: ANN401 - a result or an error
    if isinstance(response, Exception):
        return True
    return bool(response.get_response().parameters["triton_final_response"].bool_param)


def wait_for(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the server did not answer in time"
        time.sleep(0.01)


def text(value: str) -> np.ndarray[Any, Any]:
    return np.array([value.encode()], dtype=np.object_)


def int32(value: int) -> np.ndarray[Any, Any]:
    return np.array([value], dtype=np.int32)


def test_answers_do_not_depend_on_the_draft_length(client: Client) -> None:
    accepted = 0
    for prompt in prompts(10):
        plain, *speculative = (
            client.generate(prompt, GenerationOptions(max_tokens=24, draft_length=k))
            for k in (0, 1, 4, 8)
        )
        assert [result.text for result in speculative] == [plain.text] * 3
        assert plain.counts.steps == plain.counts.output_tokens == 24
        accepted += sum(result.counts.accepted_tokens or 0 for result in speculative)
    assert accepted > 100


def test_text_streams_as_it_is_accepted(client: Client) -> None:
    result = client.generate(prompts(1)[0], GenerationOptions(max_tokens=40, draft_length=2))
    assert len(result.chunks) > 5
    assert "".join(chunk.text for chunk in result.chunks) == result.text
    tokens = [chunk.counts.output_tokens or 0 for chunk in result.chunks]
    assert tokens == sorted(tokens)


def test_without_streaming_one_response_holds_everything(client: Client) -> None:
    options = GenerationOptions(max_tokens=20, draft_length=4)
    whole = client.generate(prompts(1)[0], options.evolve(stream=False))
    assert len(whole.chunks) == 1
    assert whole.text == client.generate(prompts(1)[0], options).text


def test_a_stop_word_ends_the_text_before_it(client: Client) -> None:
    prompt = prompts(2)[1]
    plain = client.generate(prompt, GenerationOptions(max_tokens=40, draft_length=0)).text
    word = plain[12:15]
    cut = client.generate(
        prompt, GenerationOptions(max_tokens=40, draft_length=8, stop_words=[word])
    )
    assert cut.text == plain[: plain.index(word)]


def test_outputs_have_their_declared_types(server: ServerRecord) -> None:
    yes = np.array([True])
    last = infer(
        server,
        {
            "text_input": text(prompts(1)[0]),
            "sampling_param_max_tokens": int32(12),
            "num_draft_tokens": int32(4),
            "return_finish_reason": yes,
            "return_stop_reason": yes,
        },
    )[-1]
    floats = {name: last.as_numpy(name) for name in ("acceptance_rate",)}
    counts = {
        name: last.as_numpy(name)
        for name in (
            "total_accepted_draft_tokens",
            "total_draft_tokens",
            "num_spec_steps",
            "num_output_tokens",
        )
    }
    assert {a.dtype for a in floats.values()} == {np.dtype(np.float32)}
    assert {a.dtype for a in counts.values()} == {np.dtype(np.int32)}
    assert counts["num_output_tokens"].tolist() == [12]
    assert floats["acceptance_rate"][0] == pytest.approx(
        counts["total_accepted_draft_tokens"][0] / counts["total_draft_tokens"][0]
    )
    assert last.as_numpy("finish_reason").tolist() == [b"length"]
    assert last.as_numpy("stop_reason").tolist() == [b""]
    assert last.as_numpy("first_token_time_ns") <= last.as_numpy("last_token_time_ns")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text_input": text("")}, "prompt is empty"),
        ({"text_input": text("x"), "sampling_param_max_tokens": int32(0)}, "max_tokens"),
        ({"text_input": text("x " * 900)}, "max_seq_len"),
        (
            {"text_input": text("x"), "sampling_param_temperature": np.array([-1], np.float32)},
            "temperature",
        ),
        (
            {"text_input": text("x"), "sampling_param_top_p": np.array([np.nan], np.float32)},
            "top_p",
        ),
        ({"text_input": text("x"), "num_draft_tokens": int32(-1)}, "draft length"),
        ({"text_input": text("x"), "return_cumulative_logprob": np.array([True])}, "logprob"),
        ({"text_input": text("x"), "lora_name": text("adapter")}, "lora_name"),
        ({"text_input": np.array([b"\xff"], np.object_)}, "UTF-8"),
        ({"text_input": np.array([b"a", b"b"], np.object_)}, "one prompt"),
        ({"text_input": text("x"), "stop": np.array([True])}, "id of the request"),
    ],
)
def test_bad_requests_are_answered_with_an_error_and_the_next_one_is_served(
    server: ServerRecord, client: Client, inputs: dict[str, np.ndarray[Any, Any]], message: str
) -> None:
    response = infer(server, inputs)[-1]
    assert isinstance(response, Exception)
    assert message in str(response)
    assert client.generate("x", GenerationOptions(max_tokens=2)).counts.output_tokens == 2


def test_a_request_ends_when_another_with_its_id_says_stop(server: ServerRecord) -> None:
    running: list[Any] = []
    long = {"text_input": text("x"), "sampling_param_max_tokens": int32(500)}
    stream = {"streaming": np.array([True]), "return_finish_reason": np.array([True])}
    tensors = []
    for name, value in {**long, **stream}.items():
        tensor = triton.InferInput(name, list(value.shape), _datatype(value))
        tensor.set_data_from_numpy(value)
        tensors.append(tensor)
    with triton.InferenceServerClient(server.endpoints.grpc) as connection:
        connection.start_stream(lambda result, error: running.append(error or result))
        connection.async_stream_infer(
            MODEL, tensors, request_id="7", enable_empty_final_response=True
        )
        wait_for(lambda: running)
        infer(server, {"text_input": text("x"), "stop": np.array([True])}, request_id="7")
        wait_for(lambda: _is_last(running[-1]))
        connection.stop_stream()
    assert running[-1].as_numpy("finish_reason").tolist() == [b"cancelled"]
    assert running[-1].as_numpy("num_output_tokens")[0] < 400


def test_a_client_that_goes_away_ends_its_request(server: ServerRecord, client: Client) -> None:
    before = metric(server, "specdeploy_requests_total")
    emitted = metric(server, "specdeploy_tokens_per_step_sum")
    with client.stream("x", GenerationOptions(max_tokens=500, draft_length=0)) as stream:
        next(stream)
    wait_for(lambda: metric(server, "specdeploy_requests_total") == before + 1)
    assert metric(server, "specdeploy_tokens_per_step_sum") - emitted < 400


def test_many_short_requests_at_a_time_leave_the_server_healthy(client: Client) -> None:
    def ask(index: int) -> int | None:
        result = client.generate(f"x{index}", GenerationOptions(max_tokens=1 + index % 3))
        return result.counts.output_tokens

    with ThreadPoolExecutor(8) as workers:
        assert list(workers.map(ask, range(120))) == [1 + index % 3 for index in range(120)]
    assert client.health().ready


def test_metrics_count_what_responses_say(server: ServerRecord, client: Client) -> None:
    names = {
        "specdeploy_drafted_tokens_total": "drafted_tokens",
        "specdeploy_accepted_tokens_total": "accepted_tokens",
        "specdeploy_steps_total": "steps",
        "specdeploy_tokens_per_step_count": "steps",
        "specdeploy_tokens_per_step_sum": "output_tokens",
    }
    before = {name: metric(server, name) for name in names}
    result = client.generate(prompts(1)[0], GenerationOptions(max_tokens=30, draft_length=4))
    expected = {name: getattr(result.counts, field) for name, field in names.items()}
    # They are published after the last response.
    grown: dict[str, float] = {}
    deadline = time.monotonic() + 30
    while grown != expected and time.monotonic() < deadline:
        grown = {name: metric(server, name) - before[name] for name in names}
    assert grown == expected


def metric(server: ServerRecord, name: str) -> float:
    with urllib.request.urlopen(f"http://{server.endpoints.metrics}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    found = [line for line in lines if line.startswith(f'{name}{{model="{MODEL}"')]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


def test_a_classic_server_refuses_to_draft(tmp_path: Path) -> None:
    plan = a_plan(PAIR, method="none", draft=None, draft_length=0)
    write_repository(tmp_path / "repository", plan)
    with (
        running_server(tmp_path / "repository", stop_at_once=True) as record,
        Client(record.endpoints.grpc, timeout_s=60) as client,
    ):
        plain = client.generate("import os", GenerationOptions(max_tokens=8))
        assert plain.counts.steps == plain.counts.output_tokens == 8
        with pytest.raises(ServerError, match="no speculative_config"):
            client.generate("import os", GenerationOptions(max_tokens=8, draft_length=4))
