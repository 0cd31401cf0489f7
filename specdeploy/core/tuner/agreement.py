"""Do greedy answers stay the same with a draft?

They may differ in a few places: a step that verifies several tokens adds in another order, and
two tokens of almost equal logits then change places. Other text everywhere is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token that differs in one answer.

    ``logit_gap`` is that of the two best tokens of the baseline there, where it is known.
    """

    prompt: int
    token: int
    logit_gap: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many answers are equal, and where the others part."""

    answers: int
    equal: int
    differences: tuple[Difference, ...]

    @property
    def share(self) -> float:
        """Share of equal answers."""
        return self.equal / self.answers if self.answers else 1.0

    @property
    def severity(self) -> Literal["equal", "warning", "error"]:
        """Some different answers are a warning, no equal one an error."""
        if self.equal == self.answers:
            return "equal"
        return "warning" if self.equal else "error"


def compare_outputs(
    baseline: Sequence[Sequence[int]],
    speculative: Sequence[Sequence[int]],
    logit_gaps: Sequence[Sequence[float]] | None = None,
) -> Agreement:
    """Compare the token ids of the same prompts, answer by answer."""
    differences = []
    for prompt, (plain, fast) in enumerate(zip(baseline, speculative, strict=True)):
        token = _first_difference(plain, fast)
        if token is not None:
            gaps = logit_gaps[prompt] if logit_gaps else ()
            gap = gaps[token] if token < len(gaps) else None
            differences.append(Difference(prompt, token, gap))
    return Agreement(len(baseline), len(baseline) - len(differences), tuple(differences))


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    shorter = min(len(one), len(other))
    at = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    return None if at == len(one) == len(other) else at
