"""The memory plan of one request, line by line."""

from __future__ import annotations

from specdeploy.core.memory.request import MemoryRequest
from specdeploy.core.memory_records import MemoryPlan


def plan_memory(request: MemoryRequest) -> MemoryPlan:
    """Return where the memory goes, what fits, and, when it does not, what would.

    Raises:
        ConfigError: a draft wider than its target shares the target's GPUs.
    """
    raise NotImplementedError
