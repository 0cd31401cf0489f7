"""Choosing tokens, and accepting drafted ones without changing what the target would say.

Symbols as in Leviathan et al. 2023 (*Fast Inference from Transformers via Speculative
Decoding*): ``p`` is the target's distribution and ``q`` the draft's, both after
temperature, top-k and top-p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class SamplingParams:
    """How one request chooses tokens.

    Attributes:
        temperature: 0 is greedy.
        top_k: Keep the k most likely tokens; 0 keeps all, 1 is greedy.
        top_p: Keep the fewest tokens whose probabilities reach this sum; 1 keeps all.
        seed: Starts the request's own generator.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be a finite number >= 0, not {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")

    @property
    def greedy(self) -> bool:
        """True when the most likely token is always taken."""
        return self.temperature == 0 or self.top_k == 1

    def generator(self) -> torch.Generator:
        """Return a new generator at the request's seed."""
        return torch.Generator().manual_seed(self.seed % (1 << 64))


class Verdict(NamedTuple):
    """Outcome of one verification: ``draft_ids[:accepted]``, then ``next_token``."""

    accepted: int
    next_token: int


def probabilities(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Return the distribution that ``params`` makes of logits ``[..., vocabulary]`` (float32).

    Temperature first, then top-k, then top-p over what is left. Greedy gives one-hot rows.
    Ties at the border of top-k or top-p are broken by the sort, so exactly k tokens stay.
    """
    logits = logits.float()
    if params.greedy:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    p = torch.softmax(logits / params.temperature, dim=-1)
    if 0 < params.top_k < p.shape[-1]:
        values, indices = p.topk(params.top_k, dim=-1)
        p = torch.zeros_like(p).scatter_(-1, indices, values)
        p /= p.sum(-1, keepdim=True)
    return _top_p(p, params.top_p) if params.top_p < 1 else p


def sample(p: torch.Tensor, generator: torch.Generator) -> int:
    """Draw one token from a distribution ``[vocabulary]``; weights need not sum to 1."""
    return int(torch.multinomial(p, 1, generator=generator).item())


def choose(logits: torch.Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    """Choose one token from logits ``[vocabulary]``."""
    if params.greedy:
        return int(logits.argmax().item())
    return sample(probabilities(logits, params), generator)


def verify(
    draft_ids: Sequence[int],
    draft_probs: torch.Tensor | None,
    target_logits: torch.Tensor,
    params: SamplingParams,
    generator: torch.Generator,
) -> Verdict:
    """Accept a beginning of ``draft_ids`` and choose the token after it.

    A drafted token ``x`` is accepted with probability ``min(1, p(x) / q(x))``; at the first
    rejection the next token comes from ``max(p - q, 0)``, normalised; when all are accepted
    it comes from ``p`` (the bonus token). So the tokens are distributed as ``p`` alone says.

    Args:
        draft_ids: ``k`` drafted tokens; none is allowed.
        draft_probs: ``q``, ``[k, vocabulary]``, or None when each was certain (prompt lookup,
            greedy drafts): then ``q`` is 1 at the drafted token.
        target_logits: ``[k + 1, vocabulary]``; row ``i`` scores position ``i``.
        params: The request's parameters; greedy compares with the arg max exactly.
        generator: The request's generator.
    """
    if params.greedy:
        return _verify_greedy(draft_ids, target_logits)
    p = probabilities(target_logits, params)
    for i, token in enumerate(draft_ids):
        q_token = 1.0 if draft_probs is None else float(draft_probs[i, token])
        u = float(torch.rand((), generator=generator))
        if u * q_token >= float(p[i, token]):
            return Verdict(i, sample(_residual(p[i], token, draft_probs, i), generator))
    return Verdict(len(draft_ids), sample(p[len(draft_ids)], generator))


def _verify_greedy(draft_ids: Sequence[int], target_logits: torch.Tensor) -> Verdict:
    best = target_logits.argmax(-1).tolist()
    accepted = next((i for i, t in enumerate(draft_ids) if t != best[i]), len(draft_ids))
    return Verdict(accepted, best[accepted])


def _residual(
    p: torch.Tensor, token: int, draft_probs: torch.Tensor | None, position: int
) -> torch.Tensor:
    """Return ``max(p - q, 0)``, or ``p`` when rounding leaves nothing of it."""
    if draft_probs is None:
        rest = p.clone()
        rest[token] = 0.0
    else:
        rest = (p - draft_probs[position]).clamp_(min=0.0)
    return rest if float(rest.sum()) > 0 else p


def _top_p(p: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the most likely tokens until their sum reaches ``top_p``; always at least one."""
    values, indices = p.sort(dim=-1, descending=True)
    before = values.cumsum(-1) - values
    values = values.masked_fill(before >= top_p, 0.0)
    kept = torch.zeros_like(p).scatter_(-1, indices, values)
    return kept / kept.sum(-1, keepdim=True)
