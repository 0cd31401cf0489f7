"""A decoupled response stream becomes chunks and one result."""

from __future__ import annotations

import codecs
from typing import final

from specdeploy.core.generation import Chunk, Counts, GenerationResult
from specdeploy.core.record import Record


class Reply(Record):
    """One response of a server."""

    text: bytes = b""
    counts: Counts = Counts()
    final: bool = False


@final
class ReplyReader:
    """Collects the replies to one request.

    A response that closes the stream and holds no text is the protocol's end mark, not a
    chunk: it is no token, no first token and no gap.
    """

    def __init__(self, model: str, prompt: str) -> None:
        self._model = model
        self._prompt = prompt
        self._sent_s: float | None = None
        # A character's bytes may be split over two responses.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._chunks: list[Chunk] = []
        self._counts = Counts()
        self._finished_s: float | None = None

    @property
    def finished(self) -> bool:
        """The final response was seen."""
        return self._finished_s is not None

    def start(self, *, sent_s: float) -> None:
        """Note when the request goes out."""
        self._sent_s = sent_s

    def read(self, reply: Reply, *, received_s: float) -> Chunk | None:
        """Take one reply; return the chunk that it makes, if any."""
        self._counts = self._counts.updated(reply.counts)
        if reply.final:
            self._finished_s = received_s
        text = self._decoder.decode(reply.text, reply.final)
        if not text and reply.final:
            return None
        chunk = Chunk(text=text, received_s=received_s, counts=self._counts)
        self._chunks.append(chunk)
        return chunk

    def result(self) -> GenerationResult:
        """Return the whole generation.

        Raises:
            ValueError: the final response was not seen yet.
        """
        if self._sent_s is None or self._finished_s is None:
            raise ValueError("the generation has not finished")
        return GenerationResult(
            model=self._model,
            prompt=self._prompt,
            text="".join(chunk.text for chunk in self._chunks),
            counts=self._counts,
            chunks=self._chunks,
            sent_s=self._sent_s,
            finished_s=self._finished_s,
        )
