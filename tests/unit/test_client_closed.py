from __future__ import annotations

import asyncio
import threading

import pytest
from scripted_server import Script, response, scripted_server, until_cancelled

from specdeploy.client import AsyncClient, Client
from specdeploy.errors import ServerError


def test_a_client_that_was_closed_is_told() -> None:
    with scripted_server(Script()) as url:
        client = Client(url)
        client.close()
        with pytest.raises(ServerError, match="was closed on this side"):
            client.generate("prompt")


def test_a_client_that_was_closed_is_told_to_asyncio_too() -> None:
    async def ask_late(url: str) -> None:
        client = AsyncClient(url)
        await client.close()
        await client.generate("prompt")

    with scripted_server(Script()) as url, pytest.raises(ServerError, match="on this side"):
        asyncio.run(ask_late(url))


def test_closing_a_client_ends_the_streams_of_other_threads() -> None:
    script = Script()
    script.steps = [response("one "), until_cancelled(script)]
    with scripted_server(script) as url, Client(url) as client:
        stream = client.stream("prompt")
        next(stream)
        threading.Timer(0.1, client.close).start()
        with pytest.raises(ServerError, match="was closed on this side"):
            next(stream)


def test_closing_a_client_is_no_cancellation_of_the_tasks_that_read() -> None:
    script = Script()
    script.steps = [response("one "), until_cancelled(script)]

    async def read(client: AsyncClient) -> None:
        stream = await client.stream("prompt")
        await anext(stream)
        asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(client.close()))
        await anext(stream)

    async def run(url: str) -> None:
        await read(AsyncClient(url))

    with scripted_server(script) as url, pytest.raises(ServerError, match="on this side"):
        asyncio.run(run(url))


def test_a_task_that_is_cancelled_stays_cancelled() -> None:
    script = Script()
    script.steps = [response("one "), until_cancelled(script)]

    async def run(url: str) -> None:
        async with AsyncClient(url) as client:
            await asyncio.wait_for(client.generate("prompt"), timeout=0.3)

    with scripted_server(script) as url, pytest.raises(asyncio.TimeoutError):
        asyncio.run(run(url))
