"""What a memory plan is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.memory.workspace import Workspace
from specdeploy.core.memory_records import LoadOrder
from specdeploy.core.served import ServedPair
from specdeploy.errors import ConfigError
from specdeploy.units import MIB

# What CUDA calls the total of a card is less than what NVML does: 22.18 of 22.49 GiB (A10),
# 79.10 of 79.65 (H100), 93.10 of 93.58 (H100 NVL), all from published logs. The line through
# them is good to 0.07 GiB; nothing is known above 94 GiB.
DRIVER_RESERVE_BYTES: Final = 256 * MIB
DRIVER_RESERVE_PARTS: Final = 320
# Far above any engine, and low enough that no product of two sizes and a row overflows.
_LARGEST: Final = {
    "max_batch_size": 2**16,
    "max_num_tokens": 2**24,
    "max_seq_len": 2**24,
    "draft_length": 2**10,
    "tokens_per_block": 2**12,
}


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Memory of one GPU before anything of ours is on it.

    Attributes:
        total_bytes: The whole card, as the driver reports it.
        free_bytes: What our processes may take; None: the total less what others hold and what
            the driver keeps for itself.
        other_bytes: What other processes hold; taken out of ``free_bytes`` already when that is
            given.
    """

    total_bytes: int
    free_bytes: int | None = None
    other_bytes: int = 0

    @property
    def usable_bytes(self) -> int:
        """What our processes may take."""
        if self.free_bytes is not None:
            return min(max(0, self.free_bytes), self.total_bytes)
        reserve = DRIVER_RESERVE_BYTES + self.total_bytes // DRIVER_RESERVE_PARTS
        return max(0, self.total_bytes - reserve - self.other_bytes)

    @property
    def held_bytes(self) -> int:
        """What other processes hold."""
        return min(self.other_bytes, self.total_bytes - self.usable_bytes)

    @property
    def reserve_bytes(self) -> int:
        """What the driver and the system keep."""
        return self.total_bytes - self.usable_bytes - self.held_bytes

    @classmethod
    def of(cls, gpu: GpuSpec) -> GpuMemory:
        """Return the memory of a known GPU that nobody uses."""
        return cls(gpu.memory_mib * MIB)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """How much of a GPU may be filled.

    ``free``: KV pools take this share of what is free when everything else has loaded, as
    Triton's ``kv_cache_free_gpu_mem_fraction`` means it. ``total``: everything on the card, other
    processes included, stays within this share of it.
    """

    of: Literal["free", "total"]
    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"a memory limit of {self.share:g} is not above 0 and at most 1")

    @classmethod
    def of_free(cls, share: float) -> MemoryLimit:
        """Return a share of what is free after loading."""
        return cls("free", share)

    @classmethod
    def of_total(cls, share: float) -> MemoryLimit:
        """Return a share of the whole card."""
        return cls("total", share)

    @classmethod
    def given(cls, share: float | None) -> MemoryLimit:
        """Return a share of the whole card; nothing given is the default."""
        return DEFAULT_LIMIT if share is None else cls.of_total(share)

    def __str__(self) -> str:
        return f"{self.share:g} of {'free' if self.of == 'free' else 'total'} memory"


DEFAULT_LIMIT: Final = MemoryLimit.of_free(0.9)


@dataclass(frozen=True, slots=True)
class KvFractions:
    """Triton's ``kv_cache_free_gpu_mem_fraction`` of both models, as someone has set them."""

    target: float
    draft: float = 0.0


@dataclass(frozen=True, slots=True)
class LoraAdapters:
    """Adapters of the target that stay on the GPU."""

    count: int
    rank: int


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """A pair, the GPUs it is to run on, and the sizes its engines are built for.

    Attributes:
        gpu: One memory for every GPU, or one for each: the target's ``tp`` first, then, for a
            draft apart, the draft's.
        max_seq_len: Usable prompt + output of one request.
        draft_length: Draft tokens per step (k); each request keeps as many KV slots more.
        context: Tokens of a whole request, if shorter than ``max_seq_len``.
        load_order: Which model Triton loads first where both share a GPU.
        fractions: Take the pools that these give, one model after the other, instead of pools of
            equal token capacity.
        cuda_graphs: Graphs are captured for the usual batch sizes, for k and for none.
    """

    pair: ServedPair
    gpu: GpuMemory | Sequence[GpuMemory]
    max_seq_len: int
    limit: MemoryLimit = DEFAULT_LIMIT
    max_batch_size: int = 8
    max_num_tokens: int = 8192
    draft_length: int = 0
    context: int | None = None
    tokens_per_block: int = 32
    load_order: LoadOrder = "draft_first"
    fractions: KvFractions | None = None
    lora: LoraAdapters | None = None
    cuda_graphs: bool = False
    workspace: Workspace = field(default_factory=Workspace)

    def __post_init__(self) -> None:
        for name, largest in _LARGEST.items():
            least, value = int(name != "draft_length"), getattr(self, name)
            if not least <= value <= largest:
                raise ConfigError(f"{name} {value:,} is not between {least} and {largest:,}")
        if self.context is not None and not 1 <= self.context <= self.max_seq_len:
            raise ConfigError(
                f"context {self.context:,} is not between 1 and max_seq_len {self.max_seq_len:,}"
            )
        if len(self.gpus) != self.gpu_count:
            raise ConfigError(
                f"{len(self.gpus)} GPUs are given for a pair that takes {self.gpu_count}"
            )

    @property
    def gpu_count(self) -> int:
        """GPUs that the pair takes."""
        draft = self.pair.draft
        return self.pair.target.tp + (draft.tp if draft and self.pair.draft_apart else 0)

    @property
    def gpus(self) -> tuple[GpuMemory, ...]:
        """The memory of each GPU."""
        if isinstance(self.gpu, GpuMemory):
            return (self.gpu,) * self.gpu_count
        return tuple(self.gpu)
