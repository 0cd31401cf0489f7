"""Attention in which each of several tokens gets the bits that it would get alone.

In 16 bit a kernel for several queries adds up in another order than one for a single query,
which rounds differently, and the difference lives on in the keys and values of later layers.
The matrix products around it have no such trouble on most processors, and they cost the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from transformers import AttentionInterface, AttentionMaskInterface

_NAME: Final = "row_by_row"
_SDPA: Final[Callable[..., tuple[torch.Tensor, None]]] = AttentionInterface()["sdpa"]


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
    # A token that sees all before it has no mask when it is alone, and another kernel.
    if attention_mask is not None and bool(attention_mask[..., -1, :].all()):
        attention_mask = None
    rows = []
    for i in range(n):
        end = length - n + i + 1
        mask = None if attention_mask is None else attention_mask[:, :, i : i + 1, :end]
        row = query[:, :, i : i + 1], key[:, :, :end], value[:, :, :end]
        rows.append(_SDPA(module, *row, mask, **options)[0])
    return torch.cat(rows, dim=1), None


def use_row_attention(model: Any) -> None:  # noqa: ANN401 - transformers is not typed
    """Switch a transformers model over; one that does not use SDPA stays as it is."""
    if model.config._attn_implementation == "sdpa":  # noqa: SLF001 - there is no public name
        AttentionInterface.register(_NAME, attend_row_by_row)
        AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["sdpa"])
        model.set_attn_implementation(_NAME)
