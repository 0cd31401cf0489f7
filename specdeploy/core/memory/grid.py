"""The memory of many settings at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.memory.request import MemoryRequest
from specdeploy.core.memory.seats import Use, sizes_of, uses_of
from specdeploy.core.memory.sizes import Sizes, Whole, whole
from specdeploy.core.memory_records import BINDINGS


@dataclass(frozen=True, slots=True)
class MemoryGrid:
    """Results in the broadcast shape of the arguments.

    Attributes:
        fixed_bytes: Everything of ours but KV, on the GPU with the least room for requests.
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
    ``max_seq_len`` unless either the argument or the request states it. ``fractions`` of the
    request are not looked at.

    Raises:
        ConfigError: a draft wider than its target shares the target's GPUs.
    """
    one = sizes_of(request)
    length = one.max_seq_len if max_seq_len is None else whole(max_seq_len)
    if context is None:
        context = length if request.context is None else one.context
    sizes = Sizes(
        batch=one.batch if batch is None else whole(batch),
        draft_length=one.draft_length if draft_length is None else whole(draft_length),
        max_num_tokens=one.max_num_tokens if max_num_tokens is None else whole(max_num_tokens),
        max_seq_len=length,
        context=whole(context),
    )
    return grid_of(uses_of(request, sizes), sizes)


def grid_of(uses: Sequence[Use], sizes: Sizes) -> MemoryGrid:
    """Return what bounds each setting, over all seats."""
    first = uses[0]
    fixed, pool, resident = first.fixed, first.allowed, first.resident
    need, missing, lacking = first.needed, first.missing, first.binding
    for use in uses[1:]:
        tighter = use.resident < resident
        tighter |= (use.resident == resident) & (use.missing > missing)
        fixed = np.where(tighter, use.fixed, fixed)
        pool = np.where(tighter, use.allowed, pool)
        need = np.where(tighter, use.needed, need)
        missing = np.where(tighter, use.missing, missing)
        resident = np.minimum(resident, use.resident)
        lacking = np.maximum(lacking, use.binding)
    waiting = (resident < sizes.batch) * BINDINGS.index("batch")
    binding = np.where(resident > 0, waiting, lacking)
    fixed, pool, need, resident, binding = np.broadcast_arrays(fixed, pool, need, resident, binding)
    return MemoryGrid(
        fixed_bytes=fixed,
        pool_bytes=pool,
        request_bytes=need,
        max_resident=resident,
        fits=resident > 0,
        binding=binding,
    )
