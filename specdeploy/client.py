"""A small client for a served pair, usable without the command line.

::

    from specdeploy.client import Client

    with Client("127.0.0.1:8001") as client:
        for chunk in client.stream("def fibonacci(n):"):
            print(chunk.text, end="", flush=True)

It speaks to our ``speculative`` model, to upstream's ``ensemble`` and ``tensorrt_llm_bls``,
and to the llmapi ``tensorrt_llm`` model. Every call ends: with an answer, with a
`specdeploy.errors.ServerError`, or by its timeout.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from types import TracebackType
from typing import final

from typing_extensions import Self

from specdeploy.adapters.inference import (
    AsyncReplies,
    AsyncTritonConnection,
    Replies,
    TritonConnection,
    build_request,
)
from specdeploy.core.generation import Chunk, Counts, GenerationOptions, GenerationResult
from specdeploy.core.reply import ReplyReader
from specdeploy.core.serving import ServerHealth
from specdeploy.core.wire import ENTRY_MODELS, ModelInterface
from specdeploy.errors import ConfigError, ServerError

__all__ = [
    "AsyncClient",
    "AsyncGenerationStream",
    "Chunk",
    "Client",
    "Counts",
    "GenerationOptions",
    "GenerationResult",
    "GenerationStream",
    "ServerHealth",
]

DEFAULT_TIMEOUT_S = 60.0

# A year: gRPC's clock overflows somewhere beyond, and a call then ends at once.
_LONGEST_TIMEOUT_S = 365 * 86400.0


@final
class GenerationStream(Iterator[Chunk]):
    """The chunks of one generation as they come; ``result()`` after the last of them.

    Closing it (or leaving its ``with`` block) early cancels the request on the server.
    """

    def __init__(self, replies: Replies, reader: ReplyReader, clock: Callable[[], float]) -> None:
        self._chunks = _read_chunks(replies, reader, clock)
        self._reader = reader

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is still to come; harmless after the end."""
        self._chunks.close()

    def result(self) -> GenerationResult:
        """Return the whole generation; what was not read yet is read first.

        Raises:
            ServerError: as iterating.
            ValueError: the stream was closed before its end.
        """
        for _ in self._chunks:
            pass
        return self._reader.result()


@final
class Client:
    """Blocking client of one server; may be shared between threads."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        model: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to talk to the gRPC address ``url`` (``host:port``); nothing is sent yet.

        Args:
            url: The server's gRPC address.
            timeout_s: The longest that any one call may take, a whole generation included.
            model: The model to ask; None finds the one that takes text.
            clock: Stamps requests and chunks, in seconds.

        Raises:
            ConfigError: ``url`` is not ``host:port``, or ``timeout_s`` is not a positive number.
        """
        self._timeout_s = _checked_timeout(timeout_s)
        self._connection = TritonConnection(url)
        self._model = model
        self._clock = clock
        self._interface: ModelInterface | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; generations in progress, and later calls, get a `ServerError`."""
        self._connection.close()

    def health(self) -> ServerHealth:
        """Return what the server says about itself and its models.

        Raises:
            ServerError: it does not answer.
        """
        return self._connection.health(self._timeout_s)

    def generate(self, prompt: str, options: GenerationOptions | None = None) -> GenerationResult:
        """Return the whole continuation of ``prompt``.

        Raises:
            ServerError: the server cannot be reached, answers an error, or is late.
            ConfigError: an option cannot be said to this model.
        """
        with self.stream(prompt, options) as stream:
            return stream.result()

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> GenerationStream:
        """Ask for a continuation of ``prompt`` and return its chunks as they come.

        The request goes out, and its times begin, when the first chunk is asked for.

        Raises:
            ServerError: here or while iterating, as `generate` does.
            ConfigError: an option cannot be said to this model.
        """
        interface = self.interface()
        request = build_request(interface, prompt, options or GenerationOptions())
        reader = ReplyReader(interface.name, prompt)
        return GenerationStream(
            self._connection.stream(request, self._timeout_s), reader, self._clock
        )

    def interface(self) -> ModelInterface:
        """Return the tensors of the model that is asked; looked up once."""
        if self._interface is None:
            name = self._model or find_entry_model(self.health())
            self._interface = self._connection.interface(name, self._timeout_s)
        return self._interface


@final
class AsyncGenerationStream(AsyncIterator[Chunk]):
    """`GenerationStream` for asyncio."""

    def __init__(
        self, replies: AsyncReplies, reader: ReplyReader, clock: Callable[[], float]
    ) -> None:
        self._chunks = _read_chunks_async(replies, reader, clock)
        self._reader = reader

    async def __anext__(self) -> Chunk:
        return await anext(self._chunks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel what is still to come; harmless after the end."""
        await self._chunks.aclose()

    async def result(self) -> GenerationResult:
        """Return the whole generation; what was not read yet is read first."""
        async for _ in self._chunks:
            pass
        return self._reader.result()


@final
class AsyncClient:
    """`Client` for asyncio; create it inside a running event loop."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        model: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to talk to ``url``; the arguments are those of `Client`."""
        self._timeout_s = _checked_timeout(timeout_s)
        self._connection = AsyncTritonConnection(url)
        self._model = model
        self._clock = clock
        self._interface: ModelInterface | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; see `Client.close`."""
        await self._connection.close()

    async def health(self) -> ServerHealth:
        """Return what the server says about itself; errors as in `Client.health`."""
        return await self._connection.health(self._timeout_s)

    async def generate(
        self, prompt: str, options: GenerationOptions | None = None
    ) -> GenerationResult:
        """Return the whole continuation of ``prompt``; errors as in `Client.generate`."""
        async with await self.stream(prompt, options) as stream:
            return await stream.result()

    async def stream(
        self, prompt: str, options: GenerationOptions | None = None
    ) -> AsyncGenerationStream:
        """Ask for a continuation and return its chunks; errors as in `Client.stream`."""
        interface = await self.interface()
        request = build_request(interface, prompt, options or GenerationOptions())
        reader = ReplyReader(interface.name, prompt)
        return AsyncGenerationStream(
            self._connection.stream(request, self._timeout_s), reader, self._clock
        )

    async def interface(self) -> ModelInterface:
        """Return the tensors of the model that is asked; looked up once."""
        if self._interface is None:
            name = self._model or find_entry_model(await self.health())
            self._interface = await self._connection.interface(name, self._timeout_s)
        return self._interface


def find_entry_model(health: ServerHealth) -> str:
    """Return the model of a server that takes text.

    Raises:
        ServerError: it serves none that we know how to ask.
    """
    served = [model.name for model in health.models]
    for name in ENTRY_MODELS:
        if name in served:
            return name
    raise ServerError(
        f"the server has none of {', '.join(ENTRY_MODELS)} (it has: {', '.join(served) or '-'})",
        hint="name the model to ask",
    )


def _checked_timeout(timeout_s: float | None) -> float:
    # None is for callers without a type checker: to gRPC it means for ever.
    if timeout_s is None or not 0 < timeout_s < math.inf:
        raise ConfigError(f"timeout_s is {timeout_s}, and every call needs a limit in seconds")
    return min(timeout_s, _LONGEST_TIMEOUT_S)


def _read_chunks(
    replies: Replies, reader: ReplyReader, clock: Callable[[], float]
) -> Generator[Chunk, None, None]:
    # Not when the stream was made: the request goes out when its first reply is asked for.
    reader.start(sent_s=clock())
    try:
        for reply in replies:
            chunk = reader.read(reply, received_s=clock())
            if chunk:
                yield chunk
            if reader.finished:
                return
    finally:
        replies.close()
    raise _ended_early()


async def _read_chunks_async(
    replies: AsyncReplies, reader: ReplyReader, clock: Callable[[], float]
) -> AsyncGenerator[Chunk, None]:
    reader.start(sent_s=clock())
    try:
        async for reply in replies:
            chunk = reader.read(reply, received_s=clock())
            if chunk:
                yield chunk
            if reader.finished:
                return
    finally:
        await replies.aclose()
    raise _ended_early()


def _ended_early() -> ServerError:
    return ServerError(
        "the answer ended without its final response", hint="the server's log has the details"
    )
