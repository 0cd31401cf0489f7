from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sampling import SamplingParams, Verdict, choose, probabilities, verify

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0])


def one_hot_rows(*tokens: int, vocabulary: int = 6) -> torch.Tensor:
    return 10 * torch.nn.functional.one_hot(torch.tensor(tokens), vocabulary).float()


def test_temperature_scales_the_logits() -> None:
    expected = torch.softmax(LOGITS / 0.5, -1)
    assert torch.allclose(probabilities(LOGITS, SamplingParams(temperature=0.5)), expected)


def test_top_k_keeps_the_k_most_likely() -> None:
    p = probabilities(LOGITS, SamplingParams(temperature=1.0, top_k=2))
    assert torch.allclose(p, torch.tensor([math.e, 1, 0, 0]) / (math.e + 1))


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    full = torch.softmax(LOGITS, -1)
    p = probabilities(LOGITS, SamplingParams(temperature=1.0, top_p=float(full[0]) + 0.01))
    assert torch.allclose(p, torch.tensor([full[0], full[1], 0, 0]) / (full[0] + full[1]))


def test_top_p_applies_to_what_top_k_left() -> None:
    params = SamplingParams(temperature=1.0, top_k=2, top_p=0.7)
    assert probabilities(LOGITS, params).tolist() == [1, 0, 0, 0]


def test_equal_logits_at_the_border_of_top_k_keep_exactly_k() -> None:
    p = probabilities(torch.zeros(8), SamplingParams(temperature=1.0, top_k=3))
    assert (p > 0).sum() == 3


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=2.0, top_k=1)])
def test_temperature_zero_and_top_k_one_are_greedy(params: SamplingParams) -> None:
    assert probabilities(LOGITS, params).tolist() == [1, 0, 0, 0]
    assert choose(LOGITS, params, params.generator()) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_p", math.nan),
    ],
)
def test_values_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{field: value})  # type: ignore[arg-type] # the wrong value is the point


@pytest.mark.parametrize(
    ("drafted", "expected"),
    [
        ([], Verdict(0, 1)),
        ([9, 2, 3], Verdict(0, 1)),
        ([1, 9, 3], Verdict(1, 2)),
        ([1, 2, 3], Verdict(3, 4)),
    ],
)
def test_greedy_accepts_the_beginning_that_equals_the_arg_max(
    drafted: list[int], expected: Verdict
) -> None:
    params = SamplingParams()
    logits = one_hot_rows(1, 2, 3, 4)[: len(drafted) + 1]
    assert verify(drafted, None, logits, params, params.generator()) == expected


def test_a_draft_that_equals_the_target_is_always_accepted() -> None:
    params = SamplingParams(temperature=1.0, seed=3)
    generator = params.generator()
    rows = torch.randn(3, 6, generator=generator)
    q = probabilities(rows[:2], params)
    for _ in range(200):
        drafted = [int(torch.multinomial(row, 1, generator=generator)) for row in q]
        assert verify(drafted, q, rows, params, generator).accepted == 2


def test_a_token_that_the_target_excludes_is_never_accepted() -> None:
    params = SamplingParams(temperature=1.0, top_k=1 + 1, seed=0)
    generator = params.generator()
    logits = torch.tensor([[5.0, 4.0, 3.0], [0.0, 0.0, 0.0]])
    for _ in range(100):
        verdict = verify([2], None, logits, params, generator)
        assert verdict.accepted == 0
        assert verdict.next_token != 2


@given(st.integers(0, 2**64 - 1))
def test_the_same_seed_draws_the_same_tokens(seed: int) -> None:
    params = SamplingParams(temperature=1.0, seed=seed)
    logits = torch.zeros(1, 1000)
    first, second = (
        verify([], None, logits, params, params.generator()).next_token for _ in range(2)
    )
    assert first == second
