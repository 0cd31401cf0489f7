"""Where an answer ends and which text may be shown now. Plain Python; no torch.

Conventions, the same in both shapes:

* Text stops **before** a stop word, as TensorRT-LLM's ``include_stop_str_in_output=False``
  (its default) says. Stop words are compared with the text, so one that straddles token
  borders is found; of several that are complete the one that starts first wins, then the
  longer one.
* An end id is part of the token count but has no text.
* ``ids`` holds every token up to the one that ended the answer, that one included, whether
  or not its text was cut.
* Tokens are judged one by one, so an answer ends at the same token however many arrive
  together: tokens accepted after the end are dropped.

Text that may still change is held back: an unfinished UTF-8 character and anything that
could be the beginning of a stop word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

FinishReason = Literal["length", "stop", "cancelled"]

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class StopRules:
    """What ends an answer.

    Attributes:
        max_tokens: Most tokens of the answer, at least 1.
        end_ids: Token ids that end it.
        stop_words: Strings that end it; empty strings are ignored.
    """

    max_tokens: int
    end_ids: frozenset[int] = frozenset()
    stop_words: tuple[str, ...] = ()


class Piece(NamedTuple):
    """What one push made visible.

    Attributes:
        text: New text; may be empty while text is held back.
        used: How many of the pushed ids belong to the answer.
        finish_reason: None while the answer goes on.
        stop_reason: The stop word or end id that ended it, else None.
    """

    text: str
    used: int
    finish_reason: FinishReason | None
    stop_reason: str | int | None


class IncrementalText:
    """Decodes a growing list of ids so that the pieces join to ``decode(all_ids)``.

    Exact for byte-level tokenizers, and for those that treat the first token specially:
    each piece is decoded together with the tokens before it.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._start = 0
        self._read = 0
        self._known = ""

    def push(self, token_id: int) -> str:
        """Add one id; return the text that is now certain."""
        self._ids.append(token_id)
        text = self._decode(self._ids[self._start :])
        if text.endswith(_REPLACEMENT):
            return ""
        return self._take(text)

    def flush(self) -> str:
        """Return what was held back, such as the replacement for a broken character."""
        return self._take(self._decode(self._ids[self._start :]))

    def _take(self, text: str) -> str:
        fresh = text[len(self._known) :]
        if fresh:
            self._start, self._read = self._read, len(self._ids)
            self._known = self._decode(self._ids[self._start : self._read])
        return fresh


class AnswerText:
    """The text and the end of one answer, fed with accepted tokens as they come."""

    def __init__(self, decode: Callable[[Sequence[int]], str], rules: StopRules) -> None:
        self._rules = rules
        self._words = tuple(word for word in rules.stop_words if word)
        self._text = IncrementalText(decode)
        self._held = ""
        self.ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None

    @property
    def remaining(self) -> int:
        """Tokens that the answer may still get."""
        return self._rules.max_tokens - len(self.ids)

    def push(self, ids: Iterable[int]) -> Piece:
        """Add newly accepted ids in order; ids after the end are not used."""
        shown: list[str] = []
        before = len(self.ids)
        for token_id in ids:
            if self.finish_reason is not None:
                break
            shown.append(self._add(token_id))
        return self._piece("".join(shown), used=len(self.ids) - before)

    def close(self, reason: FinishReason = "cancelled") -> Piece:
        """End the answer for a reason that is not in its tokens; return the held text."""
        if self.finish_reason is not None:
            return self._piece("", used=0)
        return self._piece(self._finish(reason, None), used=0)

    def _piece(self, text: str, *, used: int) -> Piece:
        return Piece(text, used, self.finish_reason, self.stop_reason)

    def _add(self, token_id: int) -> str:
        self.ids.append(token_id)
        if token_id in self._rules.end_ids:
            return self._finish("stop", token_id)
        self._held += self._text.push(token_id)
        shown = self._cut_at_stop_word()
        if shown is None and self.remaining <= 0:
            return self._finish("length", None)
        return self._release() if shown is None else shown

    def _finish(self, reason: FinishReason, stop_reason: str | int | None) -> str:
        self._held += self._text.flush()
        cut = self._cut_at_stop_word()
        if cut is not None:
            return cut
        self.finish_reason, self.stop_reason = reason, stop_reason
        shown, self._held = self._held, ""
        return shown

    def _cut_at_stop_word(self) -> str | None:
        """End the answer before the first complete stop word; None when there is none."""
        found = [(at, -len(w), w) for w in self._words if (at := self._held.find(w)) >= 0]
        if not found:
            return None
        at, _, word = min(found)
        self.finish_reason, self.stop_reason = "stop", word
        shown, self._held = self._held[:at], ""
        return shown

    def _release(self) -> str:
        """Take the text that cannot be the beginning of a stop word."""
        kept = max((_overlap(self._held, word) for word in self._words), default=0)
        cut = len(self._held) - kept
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown


def _overlap(text: str, word: str) -> int:
    """Return the length of the longest end of ``text`` that is a proper beginning of ``word``."""
    longest = min(len(text), len(word) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(word[:n])), 0)
