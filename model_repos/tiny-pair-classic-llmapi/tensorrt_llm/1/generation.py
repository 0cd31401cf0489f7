"""The loop of one request: draft, verify, emit."""

from __future__ import annotations

from typing import NamedTuple, final

from causal_lm import Session
from drafters import Drafter, Proposal
from sampling import SamplingParams, verify
from stopping import AnswerText, Piece


class Step(NamedTuple):
    """One target pass.

    Attributes:
        piece: What became visible.
        drafted: Tokens that were proposed.
        accepted: How many of them are part of the answer.
    """

    piece: Piece
    drafted: int
    accepted: int


@final
class Generation:
    """Generates one answer step by step; a draft length of 0 is plain decoding.

    Args:
        prompt: Token ids, at least one.
        target: A session that holds a beginning of the prompt, not all of it.
        drafter: Proposes tokens; None never does.
        params: How tokens are chosen; its seed starts this request's generator.
        answer: Collects the answer and knows where it ends.
    """

    def __init__(
        self,
        prompt: list[int],
        target: Session,
        drafter: Drafter | None,
        params: SamplingParams,
        answer: AnswerText,
    ) -> None:
        self._tokens = list(prompt)
        self._target = target
        self._drafter = drafter
        self._params = params
        self._answer = answer
        self._generator = params.generator()

    def step(self, draft_length: int) -> Step:
        """Emit at least one token; call it while the answer has no finish reason."""
        draft = self._draft(min(draft_length, self._answer.remaining - 1))
        held, known = self._target.length, len(self._tokens)
        logits = self._target.advance([*self._tokens[held:], *draft.ids], keep=len(draft.ids) + 1)
        verdict = verify(draft.ids, draft.probs, logits, self._params, self._generator)
        self._target.rewind(known + verdict.accepted)
        emitted = [*draft.ids[: verdict.accepted], verdict.next_token]
        self._tokens.extend(emitted)
        piece = self._answer.push(emitted)
        return Step(piece, len(draft.ids), min(verdict.accepted, piece.used))

    def _draft(self, k: int) -> Proposal:
        if self._drafter is None or k <= 0:
            return Proposal([])
        return self._drafter.propose(self._tokens, k, self._generator)
