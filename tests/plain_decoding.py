"""What the target alone says: a loop over transformers that shares no code with ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def in_turn(prompt: int, draft_length: int) -> bool:
    """Tell whether a short run asks this prompt at this draft length: every third of both."""
    return prompt % 3 == draft_length % 3


@dataclass(frozen=True)
class Plain:
    """A greedy answer, and how far ahead of the second best each token was.

    Attributes:
        ids: The answer.
        gaps: Best logit less the second best, per token.
        rounding: The step between neighbouring 16-bit numbers at the best logit, per token.
    """

    ids: list[int]
    gaps: list[float]
    rounding: list[float]

    @property
    def certain(self) -> int:
        """Tokens before the first whose two best logits rounding alone can exchange."""
        pairs = enumerate(zip(self.gaps, self.rounding, strict=True))
        return next((i for i, (gap, step) in pairs if gap < step), len(self.ids))


class PlainTarget:
    """Greedy decoding by transformers' own ``generate``."""

    def __init__(self, checkpoint: Path, *, dtype: torch.dtype = torch.float32) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=dtype).eval()
        self._model.generation_config.eos_token_id = None

    def answer(self, prompt: Sequence[int], length: int) -> Plain:
        """Continue ``prompt`` by exactly ``length`` tokens."""
        ids = torch.tensor([list(prompt)])
        made = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=length,
            pad_token_id=0,
            output_hidden_states=True,
            return_dict_in_generate=True,
        )
        # The model's own logits are rounded already, and so would be their gap.
        head = self._model.get_output_embeddings().weight.float()
        last = torch.stack([layers[-1][0, -1].float() for layers in made.hidden_states])
        best = (last @ head.T).topk(2).values.tolist()
        return Plain(
            ids=made.sequences[0, len(prompt) :].tolist(),
            gaps=[first - second for first, second in best],
            rounding=[bf16_step(first) for first, _ in best],
        )


def bf16_step(value: float) -> float:
    """Return the distance of neighbouring bfloat16 numbers (8 bits of precision) at a value."""
    exponent = math.frexp(abs(value))[1]
    return math.ldexp(1.0, exponent - 8)
