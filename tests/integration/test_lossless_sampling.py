"""Sampled answers follow the target's distribution: the real loop against exact numbers.

Logits come from a small random pair and are computed once per context; drafting, verifying
and emitting run for every draw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import drafters
import generation
import pytest
import sampling
import torch
from causal_lm import CausalModel, common_prefix, load_model
from distribution import critical_value, draws_needed, statistic
from drafters import Drafter, ModelDrafter, PromptLookupDrafter
from generation import Generation
from reference_pairs import write_pair
from sampling import SamplingParams, Verdict
from session_pool import SessionPool
from stopping import AnswerText, StopRules
from transformers import AutoModelForCausalLM

FILLER = [20, 30, 40]


class RememberingModel:
    """A model that computes the logits of a context once and then remembers them."""

    supports_rewind = True
    end_ids: frozenset[int] = frozenset()

    def __init__(self, model: CausalModel) -> None:
        self.vocab_size = model.vocab_size
        self.context_length = model.context_length
        self._model = model
        self._known: dict[tuple[tuple[int, ...], int], torch.Tensor] = {}

    def session(self) -> RememberingSession:
        return RememberingSession(self)

    def logits(self, context: tuple[int, ...], keep: int) -> torch.Tensor:
        if (context, keep) not in self._known:
            self._known[context, keep] = self._model.session().advance(context, keep=keep)
        return self._known[context, keep]


class RememberingSession:
    def __init__(self, model: RememberingModel) -> None:
        self._model = model
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def advance(self, ids: Sequence[int], *, keep: int = 0) -> torch.Tensor:
        self.tokens.extend(ids)
        return self._model.logits(tuple(self.tokens), keep or len(ids))

    def shared(self, ids: Sequence[int]) -> int:
        return common_prefix(self.tokens, ids, len(ids) - 1)

    def rewind(self, length: int) -> None:
        del self.tokens[length:]


class Case(NamedTuple):
    """Which tokens are compared, and how they are drawn."""

    tokens: int
    top_k: int
    top_p: float
    temperature: float

    @property
    def cells(self) -> int:
        return int(self.top_k**self.tokens)


CASES = [
    pytest.param(Case(tokens=1, top_k=8, top_p=1.0, temperature=1.0), id="one token, top-k 8"),
    pytest.param(Case(tokens=2, top_k=4, top_p=1.0, temperature=1.3), id="two tokens, top-k 4"),
    pytest.param(Case(tokens=1, top_k=8, top_p=0.9, temperature=1.6), id="top-p within top-k"),
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("pair"), noise=0.1)


@pytest.fixture(scope="module")
def models(pair: Path) -> dict[str, RememberingModel]:
    return {
        role: RememberingModel(load_model(pair / role, dtype="fp32"))
        for role in ("target", "draft")
    }


@pytest.fixture(autouse=True)
def remembered_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute the distribution of remembered logits once; they never change."""
    known: dict[tuple[int, torch.Size, SamplingParams], torch.Tensor] = {}
    real = sampling.probabilities

    def remembering(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
        key = (logits.data_ptr(), logits.shape, SamplingParams(params.temperature, params.top_k))
        if key not in known:
            known[key] = real(logits, params)
        return known[key]

    for module in (sampling, drafters):
        monkeypatch.setattr(module, "probabilities", remembering)


def with_a_model(pool: SessionPool, vocab_size: int, params: SamplingParams) -> Drafter:
    return ModelDrafter(pool, vocab_size, params)


def with_prompt_lookup(*_: object) -> Drafter:
    return PromptLookupDrafter(max_ngram=1)


class Draws(NamedTuple):
    """Counts of the first tokens, and of accepted tokens per step that drafted."""

    tokens: Counter[tuple[int, ...]]
    accepted: Counter[int]


def draw(
    case: Case, models: dict[str, RememberingModel], make_drafter: Callable[..., Drafter]
) -> Draws:
    """Generate as many answers as the comparison needs."""
    prompt = a_prompt(models)
    draws = Draws(Counter(), Counter())
    pool = SessionPool(models["draft"], 1)
    target = models["target"].session()
    for seed in range(draws_needed(case.cells)):
        params = SamplingParams(case.temperature, case.top_k, case.top_p, seed)
        drafter = make_drafter(pool, models["target"].vocab_size, params)
        answer = AnswerText(lambda _: "", StopRules(max_tokens=case.tokens + 1))
        target.rewind(min(target.length, len(prompt) - 1))
        one = Generation(prompt, target, drafter, params, answer)
        while len(answer.ids) < case.tokens:
            step = one.step(case.tokens)
            draws.accepted[step.accepted] += step.drafted > 0
        drafter.close()
        draws.tokens[tuple(answer.ids[: case.tokens])] += 1
    return draws


def a_prompt(models: dict[str, RememberingModel]) -> list[int]:
    """A prompt where lookup and the draft are right often but not always."""
    proposed = FILLER[0]
    for mark in range(100, models["target"].vocab_size):
        for _ in range(3):
            prompt = [mark, proposed, *FILLER, mark]
            p, q = (
                torch.softmax(models[role].logits(tuple(prompt), 1)[0], -1)
                for role in ("target", "draft")
            )
            if 0.2 < p[proposed] < 0.6 and 0.3 < torch.minimum(p, q).sum() < 0.8:
                return prompt
            proposed = int((p - 0.4).abs().argmin())
    raise AssertionError("no prompt of this form fits this pair")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("make_drafter", [with_a_model, with_prompt_lookup])
def test_drawn_tokens_follow_the_targets_distribution(
    case: Case,
    make_drafter: Callable[..., Drafter],
    models: dict[str, RememberingModel],
    pair: Path,
) -> None:
    draws = draw(case, models, make_drafter)
    assert {0, 1} <= set(+draws.accepted), "accepting and rejecting must both happen"
    expected = exact(case, a_prompt(models), pair)
    found = statistic(draws.tokens, expected)
    assert found < critical_value(case.cells - 1), (draws.tokens, expected)


def accept_all(
    draft_ids: Sequence[int],
    draft_probs: torch.Tensor | None,
    target_logits: torch.Tensor,
    params: SamplingParams,
    generator: torch.Generator,
) -> Verdict:
    del draft_probs
    last = sampling.choose(target_logits[len(draft_ids)], params, generator)
    return Verdict(len(draft_ids), last)


def draw_again_from_p(
    draft_ids: Sequence[int],
    draft_probs: torch.Tensor | None,
    target_logits: torch.Tensor,
    params: SamplingParams,
    generator: torch.Generator,
) -> Verdict:
    """After a rejection draw from ``p`` instead of from what ``q`` left of it."""
    verdict = REAL_VERIFY(draft_ids, draft_probs, target_logits, params, generator)
    if verdict.accepted == len(draft_ids):
        return verdict
    row = target_logits[verdict.accepted]
    return verdict._replace(next_token=sampling.choose(row, params, generator))


REAL_VERIFY = sampling.verify


@pytest.mark.parametrize(
    ("wrong", "case"),
    [(accept_all, CASES[0].values[0]), (draw_again_from_p, CASES[1].values[0])],
)
def test_a_wrong_acceptance_rule_is_found(
    wrong: Callable[..., Verdict],
    case: Case,
    models: dict[str, RememberingModel],
    pair: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generation, "verify", wrong)
    draws = draw(case, models, with_a_model)
    expected = exact(case, a_prompt(models), pair)
    assert statistic(draws.tokens, expected) > critical_value(case.cells - 1)


@pytest.mark.parametrize("cells", [8, 16])
def test_the_number_of_draws_finds_the_hardest_bias_of_two_percent(cells: int) -> None:
    """Shift every second cell up and the others down, on equal cells: the hardest to see."""
    draws = draws_needed(cells)
    shift = 0.02 / (cells / 2)
    generator = torch.Generator().manual_seed(0)
    biased = torch.tensor([1 / cells + shift * (-1) ** i for i in range(cells)])
    expected = dict.fromkeys(range(cells), 1 / cells)
    found = 0
    for _ in range(200):
        drawn = torch.multinomial(biased, draws, replacement=True, generator=generator)
        counts = dict(enumerate(torch.bincount(drawn, minlength=cells).tolist()))
        found += statistic(counts, expected) > critical_value(cells - 1)
    assert draws >= 20_000
    assert found >= 190


def exact(case: Case, prompt: list[int], pair: Path) -> dict[tuple[int, ...], float]:
    """Probabilities of the first tokens, from transformers and the definitions alone."""
    model = AutoModelForCausalLM.from_pretrained(pair / "target")
    cells: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(case.tokens):
        cells = {
            (*past, token): p * q
            for past, p in cells.items()
            for token, q in _next_token(model, [*prompt, *past], case).items()
        }
    return cells


def _next_token(model: torch.nn.Module, context: list[int], case: Case) -> dict[int, float]:
    with torch.no_grad():
        logits = model(torch.tensor([context])).logits[0, -1].double()
    ranked = sorted(
        enumerate((logits / case.temperature).exp().tolist()), key=lambda item: -item[1]
    )[: case.top_k]
    whole = sum(weight for _, weight in ranked)
    kept: dict[int, float] = {}
    for token, weight in ranked:
        if sum(kept.values()) < case.top_p * whole:
            kept[token] = weight
    return {token: weight / sum(kept.values()) for token, weight in kept.items()}
