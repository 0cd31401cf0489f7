"""The memory of many settings at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.memory.request import MemoryRequest
from specdeploy.core.memory.sizes import Whole


@dataclass(frozen=True, slots=True)
class MemoryGrid:
    """Results of the broadcast shape of the arguments.

    Attributes:
        fixed_bytes: Everything but KV, on the GPU with the least room for requests.
        pool_bytes: What the limit allows for KV there.
        request_bytes: KV of one whole request there.
        max_resident: Whole requests held at once.
        fits: The weights and one whole request fit.
        binding: Position in ``BINDINGS`` of what stops a larger plan.
    """

    fixed_bytes: Whole
    pool_bytes: Whole
    request_bytes: Whole
    max_resident: Whole
    fits: NDArray[np.bool_]
    binding: Whole


def memory_grid(
    request: MemoryRequest,
    *,
    batch: Whole | None = None,
    draft_length: Whole | None = None,
    max_num_tokens: Whole | None = None,
    max_seq_len: Whole | None = None,
    context: Whole | None = None,
) -> MemoryGrid:
    """Return the memory of ``request`` with its sizes replaced by arrays that broadcast.

    Equal to ``plan_memory`` at every point. Pass each array in a shape of its own
    (``batch[:, None]`` and so on): terms are then computed once per value. ``context`` follows
    ``max_seq_len`` unless given. ``fractions`` of the request are not looked at.
    """
    raise NotImplementedError
