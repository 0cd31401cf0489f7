"""One answer by rounds of draft and verify, with no server in sight.

The models are two functions, so the same loop runs over Triton, in a test and in process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, final

import numpy as np
from stopping import AnswerText, Piece

Array = np.ndarray[Any, np.dtype[Any]]

_MASK: Final = (1 << 64) - 1


class RoundError(RuntimeError):
    """A model answered what it must not; the message says which and what."""


class Proposal(NamedTuple):
    """What a draft proposes.

    Attributes:
        ids: Up to ``k`` tokens.
        logits: The scores they were drawn from, ``[k, vocabulary]``, in the form that
            ``verify`` takes; None when each token was certain.
    """

    ids: Sequence[int]
    logits: Any = None


NOTHING: Final = Proposal(())

Propose = Callable[[Array, int, int], Proposal]
"""(tokens so far, int32; k >= 1; step) -> at most k tokens."""

Verify = Callable[[Array, Proposal, int], list[int]]
"""(tokens so far, int32; proposal; step) -> the accepted ones, then the target's own token."""


@dataclass
class Totals:
    """Counts over the whole answer.

    Attributes:
        steps: Draft-then-verify rounds: passes of the target.
        drafted: Tokens proposed.
        accepted: Proposed tokens that became part of the answer.
        output_tokens: Tokens of the answer, the one that ended it included.
    """

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    output_tokens: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted; 0 when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0


class Step(NamedTuple):
    """What one round did: visible text, and counts of this round alone."""

    piece: Piece
    drafted: int
    accepted: int


@final
@dataclass
class Rounds:
    """The decode loop of one request; call :meth:`step` until ``answer.finish_reason``.

    Attributes:
        prompt: Token ids, at least one.
        answer: Text and end of the answer (it holds max tokens, end ids and stop words).
        draft_length: Tokens to propose per step; 0 switches speculation off.
        propose: The draft.
        verify: The target.
    """

    prompt: Sequence[int]
    answer: AnswerText
    draft_length: int
    propose: Propose
    verify: Verify
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        # One buffer for prompt and answer: every call gets a view instead of a copy.
        self._length = len(self.prompt)
        self._tokens = np.empty(self._length + self.answer.remaining, dtype=np.int32)
        self._tokens[: self._length] = self.prompt

    def step(self) -> Step:
        """Draft, verify, and take what belongs to the answer.

        No more is drafted than the answer may still get, less the target's own token.

        Raises:
            RoundError: a model's answer is impossible.
        """
        tokens = self._tokens[: self._length]
        k = min(self.draft_length, self.answer.remaining - 1)
        proposal = self.propose(tokens, k, self.totals.steps) if k > 0 else NOTHING
        drafted = _checked_draft(proposal, k)
        fresh = _checked_run(self.verify(tokens, proposal, self.totals.steps), drafted)
        piece = self.answer.push(fresh)
        self._take(fresh[: piece.used])
        # Of n + 1 tokens n were drafted; a cut run ends inside them.
        accepted = min(piece.used, len(fresh) - 1)
        self._count(drafted, accepted, piece.used)
        return Step(piece, drafted, accepted)

    def _take(self, fresh: Sequence[int]) -> None:
        end = self._length + len(fresh)
        self._tokens[self._length : end] = fresh
        self._length = end

    def _count(self, drafted: int, accepted: int, emitted: int) -> None:
        self.totals.steps += 1
        self.totals.drafted += drafted
        self.totals.accepted += accepted
        self.totals.output_tokens += emitted


def _checked_draft(proposal: Proposal, k: int) -> int:
    if len(proposal.ids) > max(k, 0):
        raise RoundError(f"the draft proposed {len(proposal.ids)} tokens; {k} were asked for")
    return len(proposal.ids)


def _checked_run(fresh: list[int], drafted: int) -> list[int]:
    if not 1 <= len(fresh) <= drafted + 1:
        raise RoundError(f"the target answered {len(fresh)} tokens to {drafted} drafted ones")
    return fresh


def step_seed(seed: int, step: int, role: int) -> int:
    """Return an independent 64-bit seed per request, step and role (0 draft, 1 target).

    Draft and target must not share random numbers: a draw that chose the drafted token
    would then decide its acceptance as well, and the answer's distribution would shift.
    Mixing is SplitMix64 (Steele, Lea and Flood 2014).
    """
    return _mix(_mix(seed & _MASK) + 2 * step + role + 1)


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
