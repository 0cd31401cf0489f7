"""The memory plan as a record: what each GPU holds, what fits, and what would."""

from __future__ import annotations

from typing import Final, Literal, get_args

from pydantic import Field

from specdeploy.core.record import Record

LoadOrder = Literal["draft_first", "target_first"]
# From harmless to hopeless; a grid holds the position in BINDINGS.
Binding = Literal["none", "batch", "request", "buffers", "weights"]
BINDINGS: Final[tuple[Binding, ...]] = get_args(Binding)
Change = Literal[
    "fractions",
    "context",
    "memory_limit",
    "kv_dtype",
    "draft",
    "draft_gpu",
    "no_draft",
    "batch",
    "max_num_tokens",
    "precision",
    "gpus",
]


class MemoryComponent(Record):
    """One line of a GPU's ledger."""

    name: str
    bytes: int
    formula: str


class GpuLedger(Record):
    """Everything that one GPU holds; the components add up to ``total_bytes``."""

    index: int
    components: list[MemoryComponent]
    total_bytes: int
    capacity_bytes: int = Field(description="The whole card.")
    headroom_bytes: int = Field(
        description="Above 0: room left when max_batch_size whole requests are held. 0: the pool "
        "takes all that the limit allows, and some requests wait. Below 0: bytes that are missing."
    )


class PoolPlan(Record):
    """The KV pool of one model; bytes are per GPU."""

    bytes_per_token: int = Field(description="All layers, inside their windows.")
    request_bytes: int = Field(description="One whole request, rounded up to blocks.")
    request_blocks: int
    tokens: int = Field(description="Tokens that the limit allows, whole blocks.")
    max_tokens_in_paged_kv_cache: int = Field(
        description="Tokens to ask for: those of max_batch_size whole requests, if they fit."
    )
    kv_cache_free_gpu_mem_fraction: float = Field(
        description="The same as a share of what is free when this model has loaded."
    )


class BindingConstraint(Record):
    """What stops a larger plan.

    ``none``: max_batch_size requests are held at once. ``batch``: fewer are, the rest wait.
    ``request``: no whole request fits. ``buffers``: activations and buffers do not fit beside
    the weights. ``weights``: the weights alone do not fit.
    """

    constraint: Binding
    gpu: int = Field(description="The GPU with the least room.")
    missing_bytes: int = Field(default=0, description="On that GPU, to fit at all.")
    message: str


class MemorySuggestion(Record):
    """One change with which the plan fits; computed and checked."""

    change: Change
    value: int | float | str
    message: str
    max_resident: int


class MemoryPlan(Record):
    """Where the memory of a pair goes, per GPU."""

    fits: bool = Field(description="The weights and one whole request fit.")
    max_resident: int = Field(
        description="Whole requests that memory holds at once; more of them wait."
    )
    largest_context: int = Field(
        description="Longest prompt + output of which one fits, within the models' positions."
    )
    limit: str
    load_order: LoadOrder
    gpus: list[GpuLedger]
    target: PoolPlan
    draft: PoolPlan | None = None
    binding: BindingConstraint
    suggestions: list[MemorySuggestion] = Field(
        default=[], description="What would fit, when the plan does not."
    )
    notes: list[str] = []
