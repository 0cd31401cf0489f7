"""Attention in which each of several tokens gets the bits that it would get alone.

In 16 bit a kernel for several queries adds up in another order than one for a single query,
which rounds differently, and the difference lives on in the keys and values of later layers.
The matrix products around it mostly give each row the same bits, and they cost the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

_NAME: Final = "row_by_row"
_SDPA: Final[Callable[..., tuple[torch.Tensor, None]]] = AttentionInterface()["sdpa"]

Row = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Query, keys and values of one token."""


def attend_row_by_row(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,  # noqa: ANN401 - handed on to transformers
) -> tuple[torch.Tensor, None]:
    """Attend as transformers does, but to a prefix one query at a time.

    Args:
        module: The layer; transformers reads its settings.
        query: ``[1, heads, n, head size]``.
        key: ``[1, KV heads, prefix + n, head size]``; ``value`` likewise.
        value: See ``key``.
        attention_mask: ``[1, 1, n, prefix + n]``, or None.
        options: Whatever else transformers passes.

    Returns:
        ``[1, n, heads, head size]``, and None for the weights that nobody asks for.
    """
    n, length = query.shape[2], key.shape[2]
    if n in {1, length} or options.get("position_bias") is not None:
        return _SDPA(module, query, key, value, attention_mask, **options)
    rows = [
        (query[:, :, i : i + 1], key[:, :, :end], value[:, :, :end])
        for i, end in enumerate(range(length - n + 1, length + 1))
    ]
    # A token that sees all before it has no mask when it is alone, and another kernel.
    if attention_mask is None or bool(attention_mask[..., -1, :].all()):
        return _attend_to_all(rows, options.get("scaling")), None
    mixed = [
        _SDPA(module, *row, attention_mask[:, :, i : i + 1, : row[1].shape[2]], **options)[0]
        for i, row in enumerate(rows)
    ]
    return torch.cat(mixed, dim=1), None


def _attend_to_all(rows: Sequence[Row], scale: float | None) -> torch.Tensor:
    """Call the kernel that transformers calls for one token, without the way there."""
    mixed = [
        scaled_dot_product_attention(
            query, key, value, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
        )
        for query, key, value in rows
    ]
    return torch.cat(mixed, dim=2).transpose(1, 2).contiguous()


def use_row_attention(model: Any) -> None:  # noqa: ANN401 - transformers is not typed
    """Switch a transformers model over; one that does not use SDPA stays as it is."""
    if model.config._attn_implementation == "sdpa":  # noqa: SLF001 - there is no public name
        AttentionInterface.register(_NAME, attend_row_by_row)
        AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["sdpa"])
        model.set_attn_implementation(_NAME)
