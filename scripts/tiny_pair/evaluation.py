"""How often the target accepts what the draft, or prompt lookup, proposes on held-out text."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from tiny_pair.models import END_ID, load_model, load_tokenizer
from tiny_pair.training import write_on

PROMPT_SIZES = (64, 96, 128, 160, 192, 256)
NEW_TOKENS = 128
DRAFT_LENGTHS = tuple(range(1, 9))
LOOKUP_NGRAM = 3

# Given a text's tokens, a position and a draft length: the tokens proposed from there on.
Proposer = Callable[[Sequence[int], int, int], Sequence[int]]


@dataclass
class Tally:
    """Counts over many decoding steps at one draft length."""

    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    tokens: int = 0

    def figures(self) -> dict[str, float]:
        """Return the two rates in which speculative decoding is judged, to four places."""
        rate = self.accepted / self.drafted if self.drafted else 0.0
        return {
            "acceptance_rate": round(rate, 4),
            "tokens_per_step": round(self.tokens / self.steps, 4) if self.steps else 0.0,
        }


@dataclass(frozen=True)
class Continuation:
    """A prompt with the target's greedy continuation: tokens, and where the new ones begin."""

    tokens: list[int]
    start: int


def read_prompts(folder: Path, tokenizer: Tokenizer) -> list[list[int]]:
    """Return prompts of each size from every held-out text, spread over the text.

    Each begins at the start of a line.  A text too short for all of them gives those that fit.
    """
    prompts: list[list[int]] = []
    for path in sorted(folder.glob("*.txt")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for number, size in enumerate(PROMPT_SIZES):
            first = len(lines) * number // len(PROMPT_SIZES)
            ids = tokenizer.encode("".join(lines[first:])).ids
            if len(ids) >= size:
                prompts.append(ids[:size])
    return prompts


def continue_greedily(
    target: LlamaForCausalLM, prompts: list[list[int]], new_tokens: int
) -> list[Continuation]:
    """Return the target's greedy continuation of each prompt, up to its end mark."""
    found: list[Continuation] = []
    for size in sorted({len(prompt) for prompt in prompts}):
        group = torch.tensor([prompt for prompt in prompts if len(prompt) == size])
        heat = torch.zeros(len(group))
        for row in write_on(target, group, size + new_tokens, heat).tokens.tolist():
            end = row.index(END_ID, size) + 1 if END_ID in row[size:] else len(row)
            found.append(Continuation(row[:end], size))
    return found


def tally(texts: list[Continuation], propose: Proposer, length: int) -> Tally:
    """Replay speculative decoding of ``texts``, of which greedy decoding fixes every token.

    A step proposes at most ``length`` tokens and never past the end of the text.  Those before
    the first difference are accepted, and the step adds one token of the target's own, unless
    the text has ended.
    """
    counts = Tally()
    for text in texts:
        position = text.start
        while position < len(text.tokens):
            room = min(length, len(text.tokens) - position)
            proposal = propose(text.tokens, position, room)
            wanted = text.tokens[position : position + len(proposal)]
            run = _common_run(proposal, wanted)
            gained = min(run + 1, len(text.tokens) - position)
            counts.drafted += len(proposal)
            counts.accepted += run
            counts.steps += 1
            counts.tokens += gained
            position += gained
    return counts


def _common_run(left: Sequence[int], right: Sequence[int]) -> int:
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        if one != other:
            return number
    return len(left)


def look_up(tokens: Sequence[int], position: int, length: int) -> Sequence[int]:
    """Propose what followed the latest earlier occurrence of the last few tokens.

    The longest match of at most LOOKUP_NGRAM tokens counts; without any, nothing is proposed.
    """
    for size in range(LOOKUP_NGRAM, 0, -1):
        tail = list(tokens[position - size : position])
        for start in range(position - size - 1, -1, -1):
            if list(tokens[start : start + size]) == tail:
                follow = start + size
                return tokens[follow : min(follow + length, position)]
    return []


class DraftReplay:
    """Proposes what a draft model would, from one pass of it over each finished text.

    The tokens up to the first difference are exact.  Later ones, which cannot be accepted, are
    what the draft says after the target's tokens instead of after its own.
    """

    def __init__(self, draft: LlamaForCausalLM, texts: list[Continuation]) -> None:
        self.choices = {tuple(text.tokens): _greedy_choices(draft, text) for text in texts}

    def __call__(self, tokens: Sequence[int], position: int, length: int) -> Sequence[int]:
        """Return the draft's proposal for ``tokens`` from ``position``."""
        # Entry i of the choices is the token that follows tokens 0 to i.
        return self.choices[tuple(tokens)][position - 1 : position - 1 + length]


@torch.inference_mode()
def _greedy_choices(draft: LlamaForCausalLM, text: Continuation) -> list[int]:
    logits = draft(input_ids=torch.tensor([text.tokens]), use_cache=False).logits
    choices: list[int] = logits[0].argmax(-1).tolist()
    return choices


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread, so that sums are rounded alike on any number of processors.

    Models this small gain little from more.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def measure(folder: Path, dtype: torch.dtype, prompt_limit: int | None = None) -> dict[str, object]:
    """Return the figures of the pair in ``folder``, both models running in ``dtype``.

    ``prompt_limit`` takes evenly spread prompts only, for a shorter run.
    """
    prompts = read_prompts(folder / "held_out", load_tokenizer(folder / "target"))
    if prompt_limit is not None and prompt_limit < len(prompts):
        prompts = [prompts[len(prompts) * n // prompt_limit] for n in range(prompt_limit)]
    texts = continue_greedily(load_model(folder / "target", dtype), prompts, NEW_TOKENS)
    replay = DraftReplay(load_model(folder / "draft", dtype), texts)
    return {
        "prompts": len(prompts),
        "new_tokens": sum(len(text.tokens) - text.start for text in texts),
        "draft_model": {str(k): tally(texts, replay, k).figures() for k in DRAFT_LENGTHS},
        "prompt_lookup": {str(k): tally(texts, look_up, k).figures() for k in DRAFT_LENGTHS},
    }
