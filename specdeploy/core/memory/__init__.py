"""GPU memory of a target and a draft: what fits, how many requests, and what would fit.

``memory_records`` holds the records alone, for readers that compute nothing.
"""

from specdeploy.core.memory.grid import MemoryGrid, memory_grid
from specdeploy.core.memory.plan import plan_memory
from specdeploy.core.memory.request import (
    DEFAULT_LIMIT,
    GpuMemory,
    KvFractions,
    LoraAdapters,
    MemoryLimit,
    MemoryRequest,
)
from specdeploy.core.memory.workspace import NO_WORKSPACE, Workspace
from specdeploy.core.memory_records import BINDINGS, MemoryPlan

__all__ = [
    "BINDINGS",
    "DEFAULT_LIMIT",
    "NO_WORKSPACE",
    "GpuMemory",
    "KvFractions",
    "LoraAdapters",
    "MemoryGrid",
    "MemoryLimit",
    "MemoryPlan",
    "MemoryRequest",
    "Workspace",
    "memory_grid",
    "plan_memory",
]
