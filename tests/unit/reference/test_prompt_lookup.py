from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_lookup import prompt_lookup


def plain_lookup(tokens: Sequence[int], k: int, max_ngram: int) -> list[int]:
    """The definition, word by word: longest suffix first, most recent occurrence first."""
    for size in range(min(max_ngram, len(tokens) - 1), 0, -1):
        suffix = list(tokens[-size:])
        for start in range(len(tokens) - size - 1, -1, -1):
            if list(tokens[start : start + size]) == suffix:
                return list(tokens[start + size : start + size + k])
    return []


@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.integers(0, 8),
    st.integers(1, 4),
)
def test_lookup_is_what_its_definition_says(tokens: list[int], k: int, max_ngram: int) -> None:
    assert prompt_lookup(tokens, k, max_ngram) == plain_lookup(tokens, k, max_ngram)


@pytest.mark.parametrize(
    ("tokens", "k", "expected"),
    [
        pytest.param([1, 2, 3, 9, 1, 2, 3], 2, [9, 1], id="continues the earlier occurrence"),
        pytest.param([1, 2, 7, 1, 2, 8, 1, 2], 1, [8], id="the most recent occurrence wins"),
        pytest.param([5, 1, 2, 7, 6, 2, 8, 1, 2], 1, [7], id="a longer match beats a recent one"),
        pytest.param([4, 4, 4], 3, [4], id="an occurrence may overlap the suffix"),
        pytest.param([1, 2, 3], 4, [], id="nothing repeats"),
        pytest.param([], 4, [], id="no text"),
        pytest.param([1, 1], 0, [], id="nothing asked for"),
    ],
)
def test_lookup_examples(tokens: list[int], k: int, expected: list[int]) -> None:
    assert prompt_lookup(tokens, k, 3) == expected


def test_a_suffix_longer_than_the_limit_is_not_compared() -> None:
    tokens = [1, 2, 3, 7, 0, 3, 8, 1, 2, 3]
    assert prompt_lookup(tokens, 1, max_ngram=1) == [8]
    assert prompt_lookup(tokens, 1, max_ngram=3) == [7]
