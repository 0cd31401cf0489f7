"""Where drafted tokens come from: a draft model, the text itself, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, final

import torch
from causal_lm import Session
from prompt_lookup import prompt_lookup
from sampling import SamplingParams, probabilities, sample
from session_pool import SessionPool


class Proposal(NamedTuple):
    """Drafted tokens and, unless each was certain, what they were drawn from.

    ``probs`` is ``[len(ids), target vocabulary]``.
    """

    ids: list[int]
    probs: torch.Tensor | None = None


class Drafter(Protocol):
    """Proposes tokens for one request."""

    def propose(self, tokens: Sequence[int], k: int, generator: torch.Generator) -> Proposal:
        """Propose at most ``k`` tokens that may follow ``tokens``."""

    def close(self) -> None:
        """Give back what was held for this request."""


@final
class PromptLookupDrafter:
    """Continues the text as it went on before."""

    def __init__(self, max_ngram: int) -> None:
        self._max_ngram = max_ngram

    def propose(self, tokens: Sequence[int], k: int, generator: torch.Generator) -> Proposal:
        """See :class:`Drafter`; nothing is drawn."""
        del generator
        return Proposal(prompt_lookup(tokens, k, self._max_ngram))

    def close(self) -> None:
        """Hold nothing."""


@final
class ModelDrafter:
    """Asks a draft model, whose session follows the accepted text.

    Args:
        pool: Sessions of the draft. Text longer than the draft's context is not continued.
        vocab_size: Columns of the target's logits. Ids that the target does not have are
            not drafted; ids that the draft does not have get probability 0, and text with
            one of them is not continued.
        params: The request's; a sampled request draws from the draft's distribution.
    """

    def __init__(self, pool: SessionPool, vocab_size: int, params: SamplingParams) -> None:
        self._pool = pool
        self._vocab_size = vocab_size
        self._params = params
        self._session: Session | None = None
        self._agreed = 0

    def propose(self, tokens: Sequence[int], k: int, generator: torch.Generator) -> Proposal:
        """See :class:`Drafter`."""
        k = min(k, self._pool.model.context_length - len(tokens))
        if k <= 0:
            return Proposal([])
        session = self._synchronised(tokens)
        unread = tokens[session.length :]
        if max(unread) >= self._pool.model.vocab_size:
            return Proposal([])
        ids: list[int] = []
        rows: list[torch.Tensor] = []
        while len(ids) < k:
            logits = session.advance(unread, keep=1)[0, : self._vocab_size]
            if self._params.greedy:
                ids.append(int(logits.argmax()))
            else:
                rows.append(probabilities(logits, self._params))
                ids.append(sample(rows[-1], generator))
            unread = ids[-1:]
        return Proposal(ids, self._padded(rows) if rows else None)

    def close(self) -> None:
        """Give the draft's session back."""
        if self._session is not None:
            self._pool.release(self._session)
            self._session = None

    def _synchronised(self, tokens: Sequence[int]) -> Session:
        """Return the session, holding a beginning of ``tokens`` but not all of them."""
        if self._session is None:
            self._session = self._pool.acquire(tokens)
        else:
            held = self._session.tokens
            agreed = self._agreed
            while agreed < min(len(held), len(tokens) - 1) and held[agreed] == tokens[agreed]:
                agreed += 1
            self._session.rewind(agreed)
        self._agreed = self._session.length
        return self._session

    def _padded(self, rows: list[torch.Tensor]) -> torch.Tensor:
        probs = torch.stack(rows)
        missing = self._vocab_size - probs.shape[-1]
        return torch.nn.functional.pad(probs, (0, missing)) if missing else probs
