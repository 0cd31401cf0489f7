from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from scripted_server import (
    LLMAPI_INPUTS,
    Script,
    failure,
    response,
    scripted_server,
    until_cancelled,
)

from specdeploy.adapters.ports import choose_ports
from specdeploy.client import AsyncClient, Chunk, Client, GenerationOptions, GenerationResult
from specdeploy.core.serving import Ports
from specdeploy.errors import ConfigError, ServerError

COUNTS = {
    "total_accepted_draft_tokens": 3,
    "total_draft_tokens": 4,
    "num_spec_steps": 2,
    "num_output_tokens": 5,
}
WORDS = ("one ", "two ", "three")
Generate = Callable[..., GenerationResult]


def generate(
    script: Script, options: GenerationOptions | None = None, *, timeout_s: float = 10
) -> GenerationResult:
    with scripted_server(script) as url, Client(url, timeout_s=timeout_s) as client:
        return client.generate("prompt", options)


def generate_async(
    script: Script, options: GenerationOptions | None = None, *, timeout_s: float = 10
) -> GenerationResult:
    async def ask(url: str) -> GenerationResult:
        async with AsyncClient(url, timeout_s=timeout_s) as client:
            return await client.generate("prompt", options)

    with scripted_server(script) as url:
        return asyncio.run(ask(url))


@pytest.fixture(params=[generate, generate_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Generate:
    chosen: Generate = request.param
    return chosen


@pytest.fixture
def free_port() -> int:
    return choose_ports(Ports()).grpc


def sent_values(script: Script) -> dict[str, bytes]:
    (request,) = script.requests
    contents = zip(request.inputs, request.raw_input_contents, strict=True)
    return {tensor.name: raw for tensor, raw in contents}


def test_an_empty_final_response_ends_the_stream_and_is_no_chunk(ask: Generate) -> None:
    steps = [*(response(word) for word in WORDS), response(final=True)]
    result = ask(Script(steps))
    assert result.text == "one two three"
    assert [chunk.text for chunk in result.chunks] == list(WORDS)


def test_a_final_response_with_text_ends_the_stream_and_is_a_chunk(ask: Generate) -> None:
    steps = [response("one "), response("two ", final=False), response("three", final=True)]
    result = ask(Script(steps))
    assert [chunk.text for chunk in result.chunks] == list(WORDS)


def test_what_follows_the_final_response_is_not_waited_for(ask: Generate) -> None:
    script = Script()
    script.steps = [response("all", final=True), until_cancelled(script)]
    assert ask(script, timeout_s=20).text == "all"


def test_a_stream_that_never_says_final_ends_by_its_timeout(ask: Generate) -> None:
    script = Script()
    script.steps = [response("one "), until_cancelled(script)]
    with pytest.raises(ServerError, match=r"did not finish its answer within 0\.5 s"):
        ask(script, timeout_s=0.5)


def test_a_server_that_says_nothing_ends_by_the_timeout(ask: Generate) -> None:
    script = Script()
    script.steps = [until_cancelled(script)]
    with pytest.raises(ServerError, match=r"did not finish its answer within 0\.5 s"):
        ask(script, timeout_s=0.5)


def test_a_stream_that_closes_without_a_final_response_is_an_error(ask: Generate) -> None:
    with pytest.raises(ServerError, match="ended without its final response"):
        ask(Script([response("one ")]))


def test_a_stream_that_closes_empty_is_an_error(ask: Generate) -> None:
    with pytest.raises(ServerError, match="ended without its final response"):
        ask(Script([]))


def test_an_error_inside_the_stream_is_an_error_of_the_call(ask: Generate) -> None:
    steps = [response("one "), failure("CUDA out of memory"), response(final=True)]
    with pytest.raises(ServerError, match="the server answered: CUDA out of memory"):
        ask(Script(steps))


def test_an_answer_without_text_is_empty_and_has_no_first_token(ask: Generate) -> None:
    result = ask(Script([response(final=True)]))
    assert (result.text, result.chunks, result.ttft_s) == ("", [], None)


def test_counts_are_those_of_the_last_response_that_states_them(ask: Generate) -> None:
    early = {"num_output_tokens": 1, "num_spec_steps": 1}
    steps = [response("a", counts=early), response("b", counts=COUNTS), response(final=True)]
    counts = ask(Script(steps)).counts
    assert counts.output_tokens == 5
    assert counts.acceptance_rate == 0.75
    assert counts.tokens_per_step == 2.5


@pytest.mark.parametrize("written", [b"4", b"4.0"])
def test_counts_that_arrive_as_strings_are_numbers(ask: Generate, written: bytes) -> None:
    """Upstream's llmapi model sends the type of its text with every output."""
    counts = {"total_draft_tokens": written, "total_accepted_draft_tokens": b"3"}
    script = Script([response("a", counts=counts, datatype="BYTES", final=True)])
    assert ask(script).counts.acceptance_rate == 0.75


def test_a_character_split_over_two_responses_arrives_whole(ask: Generate) -> None:
    first, second = "é".encode()[:1], "é".encode()[1:]
    result = ask(Script([response(first), response(second), response(final=True)]))
    assert result.text == "é"


def test_an_engine_shaped_model_gets_the_names_of_the_bls_model(ask: Generate) -> None:
    script = Script([response("x", final=True)])
    ask(script, GenerationOptions(max_tokens=7, draft_length=3, seed=5, stop_words=["x"]))
    assert sent_values(script) == {
        "text_input": b"\x06\0\0\0prompt",
        "max_tokens": b"\x07\0\0\0",
        "stream": b"\x01",
        "num_draft_tokens": b"\x03\0\0\0",
        "random_seed": b"\x05\0\0\0\0\0\0\0",
        "stop_words": b"\x01\0\0\0x",
    }


def test_an_llmapi_model_gets_its_own_names_and_is_asked_for_counts(ask: Generate) -> None:
    script = Script([response("x", final=True)], model="tensorrt_llm", inputs=dict(LLMAPI_INPUTS))
    ask(script, GenerationOptions(max_tokens=7, stream=False))
    assert sent_values(script) == {
        "text_input": b"\x06\0\0\0prompt",
        "sampling_param_max_tokens": b"\x07\0\0\0",
        "streaming": b"\0",
        "sampling_param_return_perf_metrics": b"\x01",
    }


def test_every_count_that_the_model_has_is_asked_for(ask: Generate) -> None:
    script = Script([response("x", final=True)], outputs=("text_output", "num_spec_steps"))
    ask(script)
    assert [output.name for output in script.requests[0].outputs] == [
        "text_output",
        "num_spec_steps",
    ]


def test_an_empty_final_response_is_asked_for(ask: Generate) -> None:
    script = Script([response("x", final=True)])
    ask(script)
    assert script.requests[0].parameters["triton_enable_empty_final_response"].bool_param


def test_an_option_that_the_model_cannot_take_is_refused(ask: Generate) -> None:
    script = Script(model="tensorrt_llm", inputs=dict(LLMAPI_INPUTS))
    with pytest.raises(ConfigError, match="no input for draft_length"):
        ask(script, GenerationOptions(draft_length=2))
    assert script.requests == []


def test_a_number_that_the_input_cannot_hold_is_refused(ask: Generate) -> None:
    with pytest.raises(ConfigError, match="does not fit INT32"):
        ask(Script(), GenerationOptions(max_tokens=2**31))


def test_a_number_that_does_not_fit_is_told_with_its_input(ask: Generate) -> None:
    with pytest.raises(ConfigError, match="cannot send max_tokens") as caught:
        ask(Script(), GenerationOptions(max_tokens=2**31))
    assert caught.value.hint


def test_a_model_that_is_not_served_is_told_with_what_to_do() -> None:
    with (
        scripted_server(Script()) as url,
        Client(url, model="nosuch") as client,
        pytest.raises(ServerError, match="'nosuch' is not found") as caught,
    ):
        client.generate("prompt")
    assert "leave the model out" in str(caught.value.hint)


def test_a_time_limit_beyond_grpcs_clock_is_no_instant_end(ask: Generate) -> None:
    assert ask(Script([response("all", final=True)]), timeout_s=1e300).text == "all"


def test_a_server_without_a_model_that_takes_text_is_refused(ask: Generate) -> None:
    with pytest.raises(ServerError, match=r"none of speculative, .*it has: resnet"):
        ask(Script(model="resnet"))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8001", "127.0.0.1", "host:", ":1", "h:70000", "h:²"]
)
def test_an_address_that_is_not_host_and_port_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        Client(url)


@pytest.mark.parametrize("timeout_s", [None, 0, -1, math.inf, math.nan])
def test_a_client_without_a_time_limit_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="every call needs a limit"):
        Client("127.0.0.1:1", timeout_s=timeout_s)


def test_nobody_listening_is_told_with_what_to_do(free_port: int) -> None:
    client = Client(f"127.0.0.1:{free_port}", timeout_s=5)
    with client, pytest.raises(ServerError, match="no server answers") as caught:
        client.health()
    assert "specdeploy serve" in str(caught.value.hint)


def test_nobody_listening_is_told_to_asyncio_too(free_port: int) -> None:
    async def check() -> None:
        async with AsyncClient(f"127.0.0.1:{free_port}", timeout_s=5) as client:
            await client.health()

    with pytest.raises(ServerError, match="no server answers"):
        asyncio.run(check())


def test_health_names_the_server_and_its_models() -> None:
    with scripted_server(Script()) as url, Client(url) as client:
        health = client.health()
    assert (health.identity, health.ready) == ("scripted", True)
    assert [model.name for model in health.models] == ["speculative"]


def test_chunks_are_given_as_they_come() -> None:
    seen = threading.Event()
    steps = [response("one "), lambda _: seen.wait(30), response("two", final=True)]
    with scripted_server(Script(steps)) as url, Client(url) as client:
        stream = client.stream("prompt")
        first = next(stream)
        seen.set()
        assert [first.text, *(chunk.text for chunk in stream)] == ["one ", "two"]


def test_leaving_a_stream_early_cancels_it_on_the_server() -> None:
    script = Script()
    script.steps = [response("one "), until_cancelled(script)]
    with scripted_server(script) as url, Client(url) as client:
        with client.stream("prompt") as stream:
            next(stream)
        assert script.cancelled.wait(10)


def test_leaving_a_stream_early_cancels_it_with_asyncio_too() -> None:
    script = Script()
    script.steps = [response("one "), until_cancelled(script)]

    async def leave(url: str) -> None:
        async with AsyncClient(url) as client, await client.stream("prompt") as stream:
            await anext(stream)

    with scripted_server(script) as url:
        asyncio.run(leave(url))
        assert script.cancelled.wait(10)


def test_the_result_of_a_stream_that_was_left_is_refused() -> None:
    script = Script()
    script.steps = [response("one "), until_cancelled(script)]
    with scripted_server(script) as url, Client(url) as client:
        with client.stream("prompt") as stream:
            next(stream)
        with pytest.raises(ValueError, match="has not finished"):
            stream.result()


def test_times_are_those_of_the_given_clock() -> None:
    ticks = itertools.count(100.0)
    steps = [response(""), response("a"), response("b"), response(final=True)]
    with (
        scripted_server(Script(steps)) as url,
        Client(url, clock=lambda: next(ticks)) as client,
    ):
        result = client.generate("prompt")
    assert (result.sent_s, result.ttft_s, result.duration_s) == (100.0, 2.0, 4.0)
    assert result.text_times_s == [102.0, 103.0]


def test_time_spent_before_the_first_chunk_is_asked_for_is_not_the_servers() -> None:
    now = 100.0
    with (
        scripted_server(Script([response("a"), response(final=True)])) as url,
        Client(url, clock=lambda: now) as client,
    ):
        stream = client.stream("prompt")
        now = 160.0
        result = stream.result()
    assert (result.sent_s, result.ttft_s) == (160.0, 0.0)


def test_time_spent_before_the_first_chunk_is_not_the_servers_with_asyncio_either() -> None:
    now = 100.0

    async def ask_late(url: str) -> GenerationResult:
        nonlocal now
        async with AsyncClient(url, clock=lambda: now) as client:
            stream = await client.stream("prompt")
            now = 160.0
            return await stream.result()

    with scripted_server(Script([response("a"), response(final=True)])) as url:
        result = asyncio.run(ask_late(url))
    assert (result.sent_s, result.ttft_s) == (160.0, 0.0)


def test_one_client_serves_several_threads_at_once() -> None:
    barrier = threading.Barrier(4, timeout=30)
    script = Script([lambda _: _wait(barrier), response("done", final=True)])
    texts: list[str] = []
    with scripted_server(script) as url, Client(url) as client:
        threads = [
            threading.Thread(target=lambda: texts.append(client.generate("p").text))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert texts == ["done"] * 4


def _wait(barrier: threading.Barrier) -> None:
    barrier.wait()


def test_a_stream_is_an_iterator_of_chunks() -> None:
    with scripted_server(Script([response("x", final=True)])) as url, Client(url) as client:
        stream: Iterator[Chunk] = client.stream("prompt")
        assert [type(chunk) for chunk in stream] == [Chunk]


def test_an_async_stream_is_an_async_iterator_of_chunks() -> None:
    async def read(url: str) -> list[str]:
        async with AsyncClient(url) as client:
            stream: AsyncIterator[Chunk] = await client.stream("prompt")
            return [chunk.text async for chunk in stream]

    with scripted_server(Script([response("x", final=True)])) as url:
        assert asyncio.run(read(url)) == ["x"]
