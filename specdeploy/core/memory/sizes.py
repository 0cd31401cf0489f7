"""The sizes that vary from one setting to the next, as whole numbers of any shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Arrays that broadcast; of shape () for one setting."""

    batch: Whole
    draft_length: Whole
    max_num_tokens: Whole
    max_seq_len: Whole
    context: Whole

    @property
    def rows(self) -> Whole:
        """Tokens that one target step verifies."""
        return self.batch * (self.draft_length + 1)


def whole(value: int | Whole) -> Whole:
    """Return a number or an array as 64-bit whole numbers."""
    return np.asarray(value, dtype=np.int64)


def ceil_divide(count: Whole, size: int | Whole) -> Whole:
    """Divide and round up."""
    return -(-count // size)


def shown(value: int | Whole) -> str:
    """Return one number with separators; many are not shown."""
    return f"{int(value):,}" if np.ndim(value) == 0 else "..."
