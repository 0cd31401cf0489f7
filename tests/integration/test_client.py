"""The public client against a real tritonserver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from servers import echo_repository, running_server

from specdeploy.client import AsyncClient, Client, GenerationOptions
from specdeploy.errors import ServerError

pytestmark = pytest.mark.triton

PROMPT = "Speculative décoding 漢字 is exact"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    repository = echo_repository(tmp_path_factory.mktemp("client") / "repository")
    with running_server(repository) as record:
        yield record.endpoints.grpc


def test_a_stream_gives_every_word_with_its_counts(url: str) -> None:
    with Client(url, timeout_s=20) as client:
        result = client.generate(PROMPT)
    assert [chunk.text for chunk in result.chunks] == [f"{word} " for word in PROMPT.split()]
    assert [chunk.counts.output_tokens for chunk in result.chunks] == [1, 2, 3, 4, 5]
    assert (result.counts.acceptance_rate, result.counts.tokens_per_step) == (0.25, 1.0)
    times = [result.sent_s, *result.text_times_s, result.finished_s]
    assert times == sorted(times)


def test_without_streaming_the_text_comes_at_once(url: str) -> None:
    with Client(url, timeout_s=20) as client:
        result = client.generate(PROMPT, GenerationOptions(stream=False, max_tokens=2))
    assert [chunk.text for chunk in result.chunks] == ["Speculative décoding "]


def test_asyncio_gets_the_same(url: str) -> None:
    async def ask() -> list[str]:
        async with AsyncClient(url, timeout_s=20) as client:
            results = await asyncio.gather(*(client.generate(PROMPT) for _ in range(4)))
            return [result.text for result in results]

    assert asyncio.run(ask()) == [f"{PROMPT} "] * 4


def test_every_option_is_taken_by_the_model(url: str) -> None:
    options = GenerationOptions(
        max_tokens=3,
        draft_length=2,
        temperature=0.7,
        top_k=5,
        top_p=0.9,
        seed=1,
        stop_words=["x", "y"],
        end_id=2,
    )
    with Client(url, timeout_s=20) as client:
        assert client.generate(PROMPT, options).counts.output_tokens == 3


def test_an_error_of_the_model_is_raised(url: str) -> None:
    with Client(url, timeout_s=20) as client, pytest.raises(ServerError, match="weights are"):
        client.generate("!raise")


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[str]:
    """A server of one test's own, to be broken."""
    repository = echo_repository(tmp_path / "repository")
    with running_server(repository, stop_at_once=True) as record:
        yield record.endpoints.grpc


def test_a_model_that_stalls_ends_by_the_timeout(doomed: str) -> None:
    with Client(doomed, timeout_s=0.5) as client, pytest.raises(ServerError, match="within"):
        client.generate("!hang")


def test_a_model_process_that_dies_is_an_error_and_no_wait(doomed: str) -> None:
    with Client(doomed) as client, pytest.raises(ServerError, match="is not healthy"):
        client.generate("!die")


def test_a_server_that_dies_is_an_error_and_no_wait(doomed: str) -> None:
    with Client(doomed) as client, pytest.raises(ServerError, match="no server answers at"):
        client.generate("!kill-server")


def test_many_requests_leave_a_server_that_still_stops_in_order(tmp_path: Path) -> None:
    """A stream that is cancelled in the moment it ends would keep its model from unloading."""
    repository = echo_repository(tmp_path / "repository")
    with running_server(repository, workspace=tmp_path / "w") as record:
        texts = ask_often(record.endpoints.grpc, 400)
    assert texts == ["a b "] * 400
    assert "successfully unloaded 'speculative'" in Path(record.log).read_text()


def ask_often(url: str, times: int) -> list[str]:
    with Client(url, timeout_s=20) as client, ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda _: client.generate("a b").text, range(times)))
