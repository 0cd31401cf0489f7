"""Whole answers inside the leaf, token by token: plain decoding as fast as it can be served.

One thread serves every open answer in turns of one token, so a new request does not wait
for an old one's end.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, final

from leaf import Leaf
from leaf_request import LeafCall
from stopping import AnswerText, StopRules
from tokenizers import Tokenizer


class Chunk(NamedTuple):
    """Ids to show now, the tokens generated so far, and whether the answer ends."""

    ids: list[int]
    num_output_tokens: int
    last: bool


class Receiver(Protocol):
    """Where the chunks of one answer go."""

    def is_cancelled(self) -> bool:
        """Tell whether nobody waits any more."""

    def send(self, chunk: Chunk) -> None:
        """Deliver a chunk; the last one ends the answer."""

    def fail(self, error: Exception) -> None:
        """End the answer with an error."""


class CancelledError(Exception):
    """The client went away."""


class Decoder(Protocol):
    """Turns an answer's tokens into ids that can be shown chunk by chunk."""

    finished: bool

    def push(self, token: int, *, last: bool) -> list[int]:
        """Add a token, perhaps the last one; return the ids to show now."""


@final
class PlainIds:
    """Every token as it comes, as TensorRT-LLM streams them."""

    finished = False

    def push(self, token: int, *, last: bool) -> list[int]:
        """Return the token."""
        del last
        return [token]


@final
class WholeCharacters:
    """Ids that ``postprocessing`` can decode chunk by chunk.

    Ids are held back while their text may still change: an unfinished character, the
    beginning of a stop word. The ids of a chunk, decoded alone, are its text. Where the
    generated ones are not (a stop word begins inside a token; the tokenizer drops a leading
    space) the text is encoded again.
    """

    def __init__(self, tokenizer: Tokenizer, call: LeafCall) -> None:
        self._tokenizer = tokenizer
        words = tuple(filter(None, map(self._decode, call.stop_sequences)))
        # A stop word without text is a special id: one more end id.
        ends = {run[-1] for run in call.stop_sequences if not self._decode(run)}
        if call.end_id is not None:
            ends.add(call.end_id)
        self._answer = AnswerText(self._decode, StopRules(call.output_len, frozenset(ends), words))
        self._pending: list[int] = []
        self._text = ""
        self.finished = False

    def push(self, token: int, *, last: bool) -> list[int]:
        """Add a token, perhaps the last one; return the ids to show now."""
        self._pending.append(token)
        self._text += self._answer.push([token]).text
        if last:
            self._text += self._answer.close().text
        self.finished = self._answer.finish_reason is not None
        return self._take() if self._text else []

    def _take(self) -> list[int]:
        ids, text = self._pending, self._text
        alone = self._decode(ids)
        if alone != text:
            if not self.finished and alone != text.removeprefix(" "):
                return []
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        self._pending, self._text = [], ""
        return ids

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


@final
class Streamer:
    """Serves open answers in turns; at most ``slots`` at a time, the others wait."""

    def __init__(self, leaf: Leaf, *, slots: int, decoder: Callable[[LeafCall], Decoder]) -> None:
        self._leaf = leaf
        self._slots = slots
        self._decoder = decoder
        self._waiting: queue.SimpleQueue[Iterator[None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="streamer", daemon=True)
        self._thread.start()

    def submit(self, call: LeafCall, receiver: Receiver) -> None:
        """Begin an answer as soon as there is a slot."""
        self._waiting.put(self._serve(call, receiver))

    def close(self) -> None:
        """Stop after the tokens that are in work."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        answers: list[Iterator[None]] = []
        while True:
            while len(answers) < self._slots and not (answers and self._waiting.empty()):
                answer = self._waiting.get()
                if answer is None:
                    return
                answers.append(answer)
            answers = [answer for answer in answers if next(answer, _DONE) is not _DONE]

    def _serve(self, call: LeafCall, receiver: Receiver) -> Iterator[None]:
        """Make one answer, or tell its receiver why not."""
        try:
            yield from self._answer(call, receiver)
        except Exception as error:  # noqa: BLE001 - the thread serves others and must go on
            receiver.fail(error)

    def _answer(self, call: LeafCall, receiver: Receiver) -> Iterator[None]:
        """Make one answer, pausing after each token."""
        with self._leaf.reading(call) as reading:
            decoder = self._decoder(call)
            for count, made in enumerate(reading.generate(), start=1):
                _check_alive(receiver)
                ids = decoder.push(made.token, last=made.last)
                last = made.last or decoder.finished
                if ids or last:
                    receiver.send(Chunk(ids, count, last))
                if last:
                    return
                yield


def _check_alive(receiver: Receiver) -> None:
    if receiver.is_cancelled():
        raise CancelledError("the request was cancelled")


_DONE = object()
