"""Teaching the target not to repeat itself without end, as small models do in greedy decoding.

The target continues pieces of the training text greedily.  Wherever it says again what it has
said, word for word, it is trained to make that token less likely ("unlikelihood training",
Welleck et al., 2019), while it goes on learning from the training text.
"""

import copy

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from tiny_pair.training import SHORT, Schedule, Trainer, next_token_loss, windows, write_on

REPEATED = 8
ROWS, STEPS_PER_ROUND = 128, 8
PROMPT, LENGTH = 32, 192
WEIGHT = 1.0


def repeats(tokens: list[int], start: int) -> list[bool]:
    """Say of each token from ``start`` whether it ends a run of tokens that occurred before."""
    seen: set[tuple[int, ...]] = set()
    found: list[bool] = []
    for end in range(REPEATED, len(tokens) + 1):
        run = tuple(tokens[end - REPEATED : end])
        if end > start:
            found.append(run in seen)
        seen.add(run)
    return found


def unlikelihood(logits: Tensor, tokens: Tensor, marked: Tensor) -> Tensor:
    """Return how sure ``logits`` are of the ``marked`` tokens; each foretells the next token."""
    chances = functional.log_softmax(logits.float(), -1)
    said = chances.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).exp()
    doubts = -torch.log1p(-said * 0.9999)
    return (doubts * marked).sum() / marked.sum().clamp(min=1)


def _say(model: LlamaForCausalLM, stream: Tensor, generator: torch.Generator) -> Tensor:
    starts = torch.randint(len(stream) - PROMPT, (ROWS,), generator=generator).tolist()
    prompts = torch.stack([stream[start : start + PROMPT] for start in starts]).long()
    speaker = copy.deepcopy(model).to(torch.bfloat16)
    return write_on(speaker, prompts, LENGTH, torch.zeros(ROWS)).tokens.long()


def unlearn_loops(model: LlamaForCausalLM, stream: Tensor, schedule: Schedule, seed: int) -> None:
    """Train ``model`` on ``stream`` further, and against its own repetitions.

    The steps are whole rounds: one of the target's own text, STEPS_PER_ROUND of training on it.
    """
    generator = torch.Generator().manual_seed(seed)
    source = windows(stream, SHORT, generator)
    trainer = Trainer("target, against loops", model, schedule)
    for _ in range(schedule.steps // STEPS_PER_ROUND):
        said = _say(model, stream, generator)
        marked = torch.tensor([repeats(row, PROMPT) for row in said.tolist()])
        print(f"share of repeated tokens: {marked.float().mean():.3f}", flush=True)
        for rows in torch.arange(ROWS).chunk(STEPS_PER_ROUND):
            logits = _logits_from(model, said[rows])
            against = unlikelihood(logits, said[rows, PROMPT:], marked[rows].float())
            trainer.step(next_token_loss(model, next(source)) + WEIGHT * against)


def _logits_from(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits: Tensor = model(input_ids=tokens, use_cache=False).logits
    return logits[:, PROMPT - 1 : -1]
