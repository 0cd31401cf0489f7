"""Bytes that one request keeps in a KV pool, in whole blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from specdeploy.core.kv_cache import kv_bytes_per_token
from specdeploy.core.memory.sizes import Sizes, Whole, ceil_divide, whole
from specdeploy.core.served import ServedModel


@dataclass(frozen=True, slots=True)
class KvShape:
    """What a block takes, per GPU: of the layers that keep all tokens, and of each window."""

    tokens_per_block: int
    full_bytes: int
    windows: tuple[tuple[int, int], ...]
    state_bytes: int

    @property
    def is_plain(self) -> bool:
        """Every block of a request takes the same."""
        return not self.windows and not self.state_bytes


def kv_shape(model: ServedModel, tokens_per_block: int) -> KvShape:
    """Return the shape of a model's KV; layers with a window are grouped by its length."""
    windows: Counter[int] = Counter()
    for group in model.spec.kv_layers:
        if group.width.window:
            size = kv_bytes_per_token([group], kv_dtype=model.kv_dtype, tp=model.tp)
            windows[group.width.window] += size * tokens_per_block
    return KvShape(
        tokens_per_block=tokens_per_block,
        full_bytes=model.kv_bytes_per_token_full * tokens_per_block,
        windows=tuple(sorted(windows.items())),
        state_bytes=model.state_bytes_per_sequence,
    )


def request_blocks(sizes: Sizes, tokens_per_block: int) -> Whole:
    """Return the blocks of one whole request: its tokens and k draft tokens, rounded up."""
    return ceil_divide(sizes.context + sizes.draft_length, tokens_per_block)


def request_bytes(shape: KvShape, sizes: Sizes) -> Whole:
    """Return what one whole request takes.

    Layers with a window keep the blocks that it and the draft tokens can touch, one more than
    they fill, because a window rarely starts where a block does.
    """
    blocks = request_blocks(sizes, shape.tokens_per_block)
    total = blocks * shape.full_bytes
    for window, size in shape.windows:
        kept = ceil_divide(window + sizes.draft_length, shape.tokens_per_block) + 1
        total = total + np.minimum(blocks, kept) * size
    return total + shape.state_bytes if shape.state_bytes else total


def block_bytes(shape: KvShape, sizes: Sizes) -> Whole:
    """Return what one block of a sequence takes, on average over a whole request."""
    if shape.is_plain:
        return whole(shape.full_bytes)
    blocks = request_blocks(sizes, shape.tokens_per_block)
    return ceil_divide(request_bytes(shape, sizes), blocks)
