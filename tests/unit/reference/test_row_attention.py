from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from row_attention import attend_row_by_row
from transformers import AttentionInterface

PREFIX, NEW, WINDOW = 40, 9, 30
LAYER = cast("torch.nn.Module", SimpleNamespace(num_key_value_groups=2, is_causal=True))


def states(heads: int, tokens: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, tokens, 64, generator=generator).bfloat16()


def alone(index: int, mask: torch.Tensor | None, **options: Any) -> torch.Tensor:  # noqa: ANN401
    """One query at a time, as plain decoding has them."""
    end = PREFIX + index + 1
    query, key, value = states(4, NEW, 1), states(2, PREFIX + NEW, 2), states(2, PREFIX + NEW, 3)
    row: torch.Tensor = AttentionInterface()["sdpa"](
        LAYER, query[:, :, index : index + 1], key[:, :, :end], value[:, :, :end], mask, **options
    )[0]
    return row


def together(mask: torch.Tensor) -> torch.Tensor:
    keys, values = states(2, PREFIX + NEW, 2), states(2, PREFIX + NEW, 3)
    rows, weights = attend_row_by_row(LAYER, states(4, NEW, 1), keys, values, mask)
    assert weights is None
    return rows


def seen(window: int) -> torch.Tensor:
    """The mask of ``NEW`` tokens behind the prefix, each of which sees ``window`` tokens."""
    causal = torch.ones(NEW, PREFIX + NEW, dtype=torch.bool).tril(PREFIX)
    return causal.triu(PREFIX + 1 - window)[None, None]


def test_each_query_gets_the_bits_that_it_gets_alone() -> None:
    expected = torch.cat([alone(i, None) for i in range(NEW)], dim=1)
    assert torch.equal(together(seen(PREFIX + NEW)), expected)


def test_a_sliding_window_keeps_its_mask() -> None:
    mask = seen(WINDOW)
    rows = [alone(i, mask[:, :, i : i + 1, : PREFIX + i + 1]) for i in range(NEW)]
    assert torch.equal(together(mask), torch.cat(rows, dim=1))


@pytest.mark.parametrize("tokens", [1, NEW])
def test_one_token_and_a_prompt_are_left_to_transformers(tokens: int) -> None:
    query, key, value = states(4, tokens, 1), states(2, tokens, 2), states(2, tokens, 3)
    expected = AttentionInterface()["sdpa"](LAYER, query, key, value, None)[0]
    assert torch.equal(attend_row_by_row(LAYER, query, key, value, None)[0], expected)
