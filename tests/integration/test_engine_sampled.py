"""Sampled answers of the engine shape are distributed as the target alone says.

The rounds, the calls and the leaves are the served ones; the models are tables, so that
the exact probabilities are known and tens of thousands of answers take seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import leaf
import numpy as np
import pytest
import torch
from causal_lm import common_prefix
from distribution import critical_value, draws_needed, statistic
from fake_triton import InferenceResponse
from fake_triton import Tensor as FakeTensor
from fields import Fields, Sampling
from leaf import Leaf
from leaf_request import LeafLimits, read_call
from leaves import Leaves
from rounds import Rounds
from sampling import SamplingParams, Verdict, probabilities
from stopping import AnswerText, StopRules

VOCABULARY = 24
PROMPT = 5


class TableModel(NamedTuple):
    """Logits that depend on the last token only."""

    logits: torch.Tensor
    vocab_size: int = VOCABULARY
    context_length: int = 100
    end_ids: frozenset[int] = frozenset()
    supports_rewind: bool = True

    def session(self) -> TableSession:
        return TableSession(self.logits)


class TableSession:
    def __init__(self, logits: torch.Tensor) -> None:
        self.tokens: list[int] = []
        self._logits = logits

    @property
    def length(self) -> int:
        return len(self.tokens)

    def advance(self, ids: Sequence[int], *, keep: int = 0) -> torch.Tensor:
        self.tokens += ids
        return self._logits[list(ids)[-keep:]]

    def shared(self, ids: Sequence[int]) -> int:
        return common_prefix(self.tokens, ids, len(ids) - 1)

    def rewind(self, length: int) -> None:
        del self.tokens[length:]


class LeafServer:
    """As much of Triton as the calls of ``speculative`` need, over two leaves."""

    Tensor = FakeTensor

    def __init__(self, leaves: dict[str, Leaf]) -> None:
        self._leaves = leaves
        self._limits = LeafLimits(100, VOCABULARY, decoupled=False, exclude_input=True)
        self.InferenceRequest = self._request

    @staticmethod
    def get_output_tensor_by_name(response: InferenceResponse, name: str) -> FakeTensor:
        return FakeTensor(name, response.outputs[name])

    def _request(
        self, model_name: str, requested_output_names: list[str], inputs: list[FakeTensor]
    ) -> LeafServer:
        del requested_output_names
        fields = Fields({t.name(): t.as_numpy() for t in inputs})
        answer = self._leaves[model_name].answer(read_call(fields, self._limits))
        outputs = {
            "output_ids": np.array([[answer.ids]]),
            "sequence_length": np.array([[len(answer.ids)]]),
        }
        if answer.logits is not None:
            outputs["generation_logits"] = answer.logits.numpy()[None, None]
        self._response = InferenceResponse([FakeTensor(k, v) for k, v in outputs.items()])
        return self

    def exec(self) -> InferenceResponse:
        return self._response


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tables() -> tuple[TableModel, TableModel]:
    """A target, and a draft that is often but not always of its opinion."""
    generator = torch.Generator().manual_seed(7)
    target = 1.2 * torch.randn(VOCABULARY, VOCABULARY, generator=generator)
    noise = torch.randn(VOCABULARY, VOCABULARY, generator=generator)
    return TableModel(target), TableModel(target + 0.9 * noise)


class Sampler:
    """Draws answers of a fixed length, each with a seed of its own."""

    def __init__(self, *, tokens: int, top_k: int, draft_logits: bool = True) -> None:
        target, draft = tables()
        self._tokens, self._draft_logits = tokens, draft_logits
        self._sampling = Sampling(temperature=0.9, top_k=top_k)
        self._server = LeafServer({"target": Leaf(target, slots=1), "draft": Leaf(draft, slots=1)})

    def draw(self, seed: int) -> tuple[int, ...]:
        sampling = Sampling(
            self._sampling.temperature, self._sampling.top_k, self._sampling.top_p, seed
        )
        calls = Leaves(
            self._server,
            sampling=sampling,
            use_draft_logits=self._draft_logits,
            vocab_size=VOCABULARY,
        )
        rounds = Rounds(
            prompt=[PROMPT],
            # One token more than is looked at, so that the first step drafts.
            answer=AnswerText(str, StopRules(self._tokens + 1)),
            draft_length=self._tokens,
            propose=lambda *call: calls.draft("draft", *call),
            verify=lambda *call: calls.verify("target", *call),
        )
        while len(rounds.answer.ids) < self._tokens:
            rounds.step()
        return tuple(rounds.answer.ids[: self._tokens])

    def exact(self) -> dict[tuple[int, ...], float]:
        """Return the probability of every possible answer, by the definitions alone."""
        answers: dict[tuple[int, ...], float] = {(): 1.0}
        for _ in range(self._tokens):
            answers = {
                (*ids, token): p * q
                for ids, p in answers.items()
                for token, q in self._next_token((PROMPT, *ids)[-1]).items()
            }
        return answers

    def _next_token(self, last: int) -> dict[int, float]:
        target, _ = tables()
        weights = (target.logits[last].double() / self._sampling.temperature).exp().tolist()
        kept = sorted(range(VOCABULARY), key=lambda token: -weights[token])[: self._sampling.top_k]
        return {token: weights[token] / sum(weights[t] for t in kept) for token in kept}


def drawn(sampler: Sampler, draws: int) -> tuple[float, float]:
    """Return Pearson's statistic of some draws, and what it must stay below."""
    exact: dict[object, float] = dict(iter(sampler.exact().items()))
    counts: Counter[object] = Counter(sampler.draw(seed) for seed in range(draws))
    return statistic(counts, exact), critical_value(len(exact) - 1)


FULL = pytest.mark.full


@pytest.mark.parametrize(
    ("tokens", "top_k", "draft_logits"),
    [
        pytest.param(2, 4, True, id="two tokens"),
        pytest.param(1, 8, True, id="one token", marks=FULL),
        pytest.param(2, 4, False, id="two tokens, no draft logits", marks=FULL),
        pytest.param(1, 8, False, id="one token, no draft logits", marks=FULL),
    ],
)
def test_sampled_answers_have_the_targets_distribution(
    tokens: int, top_k: int, *, draft_logits: bool
) -> None:
    sampler = Sampler(tokens=tokens, top_k=top_k, draft_logits=draft_logits)
    found, limit = drawn(sampler, draws_needed(len(sampler.exact())))
    assert found < limit


def accept_by_comparison(
    draft_ids: Sequence[int],
    draft_probs: torch.Tensor | None,
    target_logits: torch.Tensor,
    params: SamplingParams,
    generator: torch.Generator,
) -> Verdict:
    """A wrong rule: accept what the target finds at least half as likely as the draft does."""
    assert draft_probs is not None
    p = probabilities(target_logits, params)
    for i, token in enumerate(draft_ids):
        if p[i, token] < 0.5 * draft_probs[i, token]:
            return Verdict(i, int(torch.multinomial(p[i], 1, generator=generator)))
    return Verdict(len(draft_ids), int(torch.multinomial(p[-1], 1, generator=generator)))


def test_a_wrong_acceptance_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf, "verify", accept_by_comparison)
    found, limit = drawn(Sampler(tokens=1, top_k=8), 5000)
    assert found > limit
