"""Training of the target on text, and of the draft on what the target itself writes."""

import inspect
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache, LlamaForCausalLM
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tiny_pair.models import END_ID, START_ID

TOKENS_PER_STEP = 4096
SHORT, LONG = 256, 2048
LONG_EVERY = 16
# The learning rate rises, stays, and falls to nothing over the last part of the training.
WARM_STEPS = 30
FALLING_SHARE = 0.3
KEPT = 16
ROWS = 256
# transformers 5.24 renamed the parameter; earlier releases know the old name only.
RENAMED = "cache" in inspect.signature(LlamaForCausalLM.forward).parameters
CACHE = "cache" if RENAMED else "past_key_values"


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train: optimizer steps and the highest learning rate."""

    steps: int
    rate: float
    report_every: int = 10


@dataclass(frozen=True)
class Course:
    """The draft's training, on text that the target writes for it.

    ``prompts`` are the lengths to choose from, ``length`` that of a prompt with what follows,
    ``heat`` the sampling temperatures in turn (zero: greedy), ``choice`` the weight of the
    target's first choice in the loss; one step in ``text_every`` is on plain text.
    """

    batches: int
    prompts: tuple[int, ...]
    length: int
    heat: tuple[float, ...]
    choice: float
    text_every: int
    schedule: Schedule


@dataclass(frozen=True)
class Lessons:
    """Token sequences with the target's strongest logits after each token.

    ``tokens`` is (rows, length); ``ids`` and ``logits`` are (rows, length, KEPT), strongest
    first.
    """

    tokens: Tensor
    ids: Tensor
    logits: Tensor


def encode_stream(tokenizer: Tokenizer, texts: dict[str, str]) -> Tensor:
    """Return all ``texts`` as one row of token ids, each between a start and an end mark."""
    numbers: list[int] = []
    for encoding in tokenizer.encode_batch(list(texts.values())):
        numbers += [START_ID, *encoding.ids, END_ID]
    return torch.tensor(numbers, dtype=torch.int16)


def windows(stream: Tensor, length: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of ``length``-token windows for ever; each pass shifts and reorders them."""
    rows = max(1, TOKENS_PER_STEP // length)
    while True:
        shift = int(torch.randint(length, (1,), generator=generator))
        usable = (len(stream) - shift) // length * length
        blocks = stream[shift : shift + usable].view(-1, length)
        order = torch.randperm(len(blocks), generator=generator)
        for first in range(0, len(order) - rows + 1, rows):
            yield blocks[order[first : first + rows]].long()


def _optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    inner = [weight for name, weight in model.named_parameters() if _is_inner(name, weight)]
    outer = [weight for name, weight in model.named_parameters() if not _is_inner(name, weight)]
    # Muon needs about a third fewer steps than AdamW here; it is made for inner matrices only.
    return [
        torch.optim.Muon(inner, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(outer, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _is_inner(name: str, weight: Tensor) -> bool:
    return weight.dim() > 1 and "embed" not in name


def _rate(step: int, schedule: Schedule) -> float:
    rising = (step + 1) / WARM_STEPS
    falling = (schedule.steps - step) / (FALLING_SHARE * schedule.steps)
    return schedule.rate * min(1.0, rising, falling)


class Trainer:
    """One model with its optimizer; ``step`` takes a loss and improves the model."""

    def __init__(self, name: str, model: LlamaForCausalLM, schedule: Schedule) -> None:
        self.name = name
        self.model = model.train()
        self.schedule = schedule
        self.optimizers = _optimizers(model)
        self.done = 0
        self.total = 0.0
        self.started = time.monotonic()

    def step(self, loss: Tensor) -> None:
        """Follow the gradient of ``loss`` once at the rate due now; report now and then."""
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = _rate(self.done, self.schedule)
            optimizer.step()
            optimizer.zero_grad()
        self.done += 1
        self.total += loss.item()
        if self.done % self.schedule.report_every == 0:
            self._report()

    def _report(self) -> None:
        mean = self.total / self.schedule.report_every
        spent = time.monotonic() - self.started
        print(
            f"{self.name}: step {self.done} of {self.schedule.steps}, "
            f"loss {mean:.3f}, {spent:.0f} s",
            flush=True,
        )
        self.total = 0.0


def _logits(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits: Tensor = model(input_ids=tokens, use_cache=False).logits
    return logits


def next_token_loss(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    """Return how badly ``model`` foretells each of ``tokens`` from those before."""
    logits = _logits(model, tokens)[:, :-1].flatten(0, 1).float()
    return functional.cross_entropy(logits, tokens[:, 1:].flatten())


def train_target(model: LlamaForCausalLM, stream: Tensor, schedule: Schedule, seed: int) -> None:
    """Train ``model`` to predict the next token of ``stream``."""
    generator = torch.Generator().manual_seed(seed)
    short = windows(stream, SHORT, generator)
    long = windows(stream, LONG, generator)
    trainer = Trainer("target", model, schedule)
    while trainer.done < schedule.steps:
        tokens = next(long if trainer.done % LONG_EVERY == LONG_EVERY - 1 else short)
        trainer.step(next_token_loss(model, tokens))


@torch.inference_mode()
def teach_text(target: LlamaForCausalLM, stream: Tensor, rows: int, seed: int) -> Lessons:
    """Return the target's logits on ``rows`` long windows of ``stream``."""
    source = windows(stream, LONG, torch.Generator().manual_seed(seed))
    parts: list[Lessons] = []
    while sum(len(part.tokens) for part in parts) < rows:
        tokens = next(source)
        best = target(input_ids=tokens, use_cache=False).logits.topk(KEPT)
        parts.append(_compact(tokens, best.indices, best.values))
    return join_lessons(parts)


def _compact(tokens: Tensor, ids: Tensor, logits: Tensor) -> Lessons:
    return Lessons(tokens.to(torch.int16), ids.to(torch.int16), logits.to(torch.float16))


def join_lessons(parts: list[Lessons]) -> Lessons:
    """Return the rows of all ``parts``, which must be equally long, as one."""
    return Lessons(
        torch.cat([part.tokens for part in parts]),
        torch.cat([part.ids for part in parts]),
        torch.cat([part.logits for part in parts]),
    )


class RoomyLayer(DynamicLayer):  # type: ignore[misc] # transformers is not typed
    """Keys and values of one layer, written into room set aside once instead of copied."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.used = 0

    def lazy_initialization(self, key_states: Tensor, *others: Tensor) -> None:
        """Set the room aside, in the shape and type of the first keys."""
        super().lazy_initialization(key_states, *others)
        rows, heads, _, size = key_states.shape
        self.room = key_states.new_empty(2, rows, heads, self.length, size)

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Add what one pass computed, and return all so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin, self.used = self.used, self.used + key_states.shape[-2]
        self.room[0, :, :, begin : self.used] = key_states
        self.room[1, :, :, begin : self.used] = value_states
        self.keys, self.values = self.room[0, :, :, : self.used], self.room[1, :, :, : self.used]
        return self.keys, self.values


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **options: Any,  # noqa: ANN401 - handed on to transformers
) -> tuple[Tensor, None]:
    """Attend as transformers does; for one new token per row, without copies of shared heads.

    ``query`` is (rows, heads, tokens, size); ``key`` and ``value`` have fewer, shared heads.
    """
    if query.shape[2] > 1:
        whole: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, mask, **options
        )
        return whole
    rows, heads, _, size = query.shape
    grouped = query.view(rows, key.shape[1], -1, size)
    weights = (grouped @ key.transpose(-1, -2)).float() * options["scaling"]
    mixed = weights.softmax(-1).to(query.dtype) @ value
    return mixed.view(rows, 1, heads, size), None


ALL_ATTENTION_FUNCTIONS.register("grouped", _attend)


@torch.inference_mode()
def write_on(target: LlamaForCausalLM, prompts: Tensor, length: int, heat: Tensor) -> Lessons:
    """Let the target continue ``prompts`` up to ``length`` tokens, and keep its logits.

    ``heat`` is each row's sampling temperature; a row at zero takes the likeliest token.
    """
    target.set_attn_implementation("grouped")
    cache = DynamicCache(config=target.config)
    cache.layers = [RoomyLayer(length) for _ in cache.layers]
    tokens, step = prompts, prompts
    ids: list[Tensor] = []
    kept: list[Tensor] = []
    while True:
        logits = target(input_ids=step, use_cache=True, **{CACHE: cache}).logits
        best = logits.topk(KEPT)
        ids.append(best.indices.to(torch.int16))
        kept.append(best.values.to(torch.float16))
        if tokens.shape[1] == length:
            return _compact(tokens, torch.cat(ids, 1), torch.cat(kept, 1))
        step = _choose(logits[:, -1].float(), heat)
        tokens = torch.cat([tokens, step], 1)


def _choose(logits: Tensor, heat: Tensor) -> Tensor:
    drawn = torch.softmax(logits / heat.clamp(min=0.01).unsqueeze(1), -1).multinomial(1)
    return torch.where(heat.unsqueeze(1) > 0, drawn, logits.argmax(-1, keepdim=True))


def teach_writing(target: LlamaForCausalLM, stream: Tensor, course: Course, seed: int) -> Lessons:
    """Return the target's own continuations of pieces of ``stream``, as ``course`` says."""
    torch.manual_seed(seed)
    chooser = random.Random(seed)
    heat = torch.tensor(course.heat)[torch.arange(ROWS) % len(course.heat)]
    parts: list[Lessons] = []
    started = time.monotonic()
    for number in range(course.batches):
        size = chooser.choice(course.prompts)
        starts = [chooser.randrange(len(stream) - size) for _ in range(ROWS)]
        prompts = torch.stack([stream[start : start + size] for start in starts]).long()
        parts.append(write_on(target, prompts, course.length, heat))
        spent = time.monotonic() - started
        print(f"target's own text: {number + 1} of {course.batches}, {spent:.0f} s", flush=True)
    return join_lessons(parts)


def _batches(lessons: Lessons, generator: torch.Generator) -> Iterator[Lessons]:
    rows = max(1, TOKENS_PER_STEP // lessons.tokens.shape[1])
    while True:
        order = torch.randperm(len(lessons.tokens), generator=generator)
        for first in range(0, len(order) - rows + 1, rows):
            pick = order[first : first + rows]
            yield Lessons(lessons.tokens[pick], lessons.ids[pick], lessons.logits[pick])


def imitation_loss(logits: Tensor, lesson: Lessons, choice: float) -> Tensor:
    """Return how far ``logits`` are from the target's.

    The part ``choice`` of it is about the target's first choice, the rest about all it kept.
    """
    ids = lesson.ids.long()
    chances = functional.log_softmax(logits.float(), -1).gather(-1, ids)
    wanted = torch.softmax(lesson.logits.float(), -1)
    whole = -(wanted * chances).sum(-1).mean()
    first = -chances[..., 0].mean()
    return (1 - choice) * whole + choice * first


def train_draft(
    model: LlamaForCausalLM, text: Lessons, writing: Lessons, course: Course, seed: int
) -> None:
    """Train ``model`` to answer as the target does, on plain text and on the target's own.

    The plain text also teaches the long contexts.
    """
    generator = torch.Generator().manual_seed(seed)
    plain = _batches(text, generator)
    own = _batches(writing, generator)
    trainer = Trainer("draft", model, course.schedule)
    while trainer.done < course.schedule.steps:
        lesson = next(plain if trainer.done % course.text_every == 0 else own)
        loss = imitation_loss(_logits(model, lesson.tokens.long()), lesson, course.choice)
        trainer.step(loss)
