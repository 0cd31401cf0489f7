"""A leaf model without Triton: generate, or verify what a draft proposed.

The same class is target and draft. Calls carry all tokens so far; sessions keep keys and
values from call to call, so only new tokens are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import torch
from causal_lm import CausalModel, Session
from leaf_request import LeafCall
from sampling import SamplingParams, choose, probabilities, verify
from session_pool import SessionPool

TOKENS_PER_BLOCK: Final = 32
"""TensorRT-LLM's block size, in which KV reuse is reported."""


@dataclass(frozen=True)
class LeafAnswer:
    """What one call answers.

    Attributes:
        ids: Generated tokens; of a verification the accepted ones and the target's own.
        drafted: Tokens that were to verify.
        accepted: How many of them are in ``ids``.
        reused: Tokens of the prompt whose keys and values were there already.
        logits: The scores behind ``ids``, ``[len(ids), vocabulary]``; None when not asked.
    """

    ids: list[int]
    drafted: int
    accepted: int
    reused: int
    logits: torch.Tensor | None


class Made(NamedTuple):
    """One generated token, the scores it was chosen from, and whether the answer ends."""

    token: int
    logits: torch.Tensor
    last: bool


@final
class Leaf:
    """One model with ``slots`` sessions, one for each request that is served at a time."""

    def __init__(self, model: CausalModel, *, slots: int) -> None:
        self.model = model
        self._pool = SessionPool(model, slots)

    def answer(self, call: LeafCall) -> LeafAnswer:
        """Serve a call to its end."""
        with self.reading(call) as reading:
            if call.draft_ids:
                return self._verify(call, reading)
            made = list(reading.generate())
            logits = torch.stack([m.logits for m in made]) if call.return_logits else None
            return LeafAnswer([m.token for m in made], 0, 0, reading.reused, logits)

    @contextmanager
    def reading(self, call: LeafCall) -> Iterator[Reading]:
        """Hold the session that knows most of a call's tokens."""
        session = self._pool.acquire(call.ids)
        try:
            yield Reading(call, session)
        finally:
            self._pool.release(session)

    def _verify(self, call: LeafCall, reading: Reading) -> LeafAnswer:
        k = len(call.draft_ids)
        logits = reading.advance([*reading.unread, *call.draft_ids], keep=k + 1)
        params = reading.params
        q = None
        if call.draft_logits is not None and not params.greedy:
            q = probabilities(torch.tensor(call.draft_logits), params)
        verdict = verify(call.draft_ids, q, logits, params, params.generator())
        fresh = [*call.draft_ids[: verdict.accepted], verdict.next_token]
        ids = fresh[: end_of_run(fresh, call)]
        return LeafAnswer(
            ids=ids,
            drafted=k,
            accepted=min(verdict.accepted, len(ids)),
            reused=reading.reused,
            logits=logits[: len(ids)] if call.return_logits else None,
        )


@final
class Reading:
    """A session at work on one call."""

    def __init__(self, call: LeafCall, session: Session) -> None:
        self._call = call
        self._session = session
        self.reused = session.length
        s = call.sampling
        self.params = SamplingParams(s.temperature, s.top_k, s.top_p, s.seed)

    @property
    def unread(self) -> list[int]:
        """Tokens of the prompt that the session has not read, at least one."""
        return self._call.ids[self.reused :]

    def advance(self, ids: Sequence[int], *, keep: int) -> torch.Tensor:
        """Read tokens; logits of the last ``keep``."""
        return self._session.advance(ids, keep=keep)

    def generate(self) -> Iterator[Made]:
        """Yield each next token until the answer ends."""
        generator = self.params.generator()
        ids: list[int] = []
        fresh: Sequence[int] = self.unread
        last = False
        while not last:
            row = self._session.advance(fresh, keep=1)[-1]
            token = choose(row, self.params, generator)
            ids.append(token)
            last = len(ids) == self._call.output_len or ends_here(ids, self._call)
            yield Made(token, row, last)
            fresh = (token,)


def end_of_run(ids: Sequence[int], call: LeafCall) -> int:
    """Count the tokens up to the first that ends the answer, that one included."""
    ends = (n for n in range(1, len(ids) + 1) if ends_here(ids[:n], call))
    return next(ends, len(ids))


def ends_here(ids: Sequence[int], call: LeafCall) -> bool:
    """Tell whether the last token is the end id or completes a stop sequence."""
    if ids[-1] == call.end_id:
        return True
    return any(list(ids[-len(run) :]) == run for run in call.stop_sequences)
