"""What the headers of weight files tell: names, shapes and sizes, no values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Bits per element of every dtype that a safetensors header may name.
DTYPE_BITS: Final = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "I64": 64,
    "I32": 32,
    "I16": 16,
    "I8": 8,
    "U64": 64,
    "U32": 32,
    "U16": 16,
    "U8": 8,
    "BOOL": 8,
    "C64": 64,
}
_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
_SCALES: Final = ("_scale", "_scale_inv", ".scales", ".qzeros", ".g_idx", "_scale_2", "_zero_point")
_VISION: Final = re.compile(
    r"(?:^|\.)(?:visual|vision_\w+|multi_modal_projector|mm_projector|audio_\w+|image_\w+)(?:\.|$)"
)
_EMBEDDING: Final = re.compile(
    r"(?:^|\.)(?:embed_tokens|wte|embed_in|word_embeddings|tok_embeddings)\.weight$"
)
_LM_HEAD: Final = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output)\.weight$")


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a weight file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def layer(self) -> int | None:
        """Index of the decoder layer that the name puts it in."""
        match = _LAYER.search(self.name)
        return int(match[1]) if match else None

    @property
    def is_floating(self) -> bool:
        """True for plain and 8-bit floats: one element is one parameter."""
        return self.dtype.startswith(("F", "BF")) and self.dtype not in {"F4", "F8_E8M0"}

    @property
    def is_embedding(self) -> bool:
        """True for the token embedding table."""
        return bool(_EMBEDDING.search(self.name))

    @property
    def is_lm_head(self) -> bool:
        """True for the output projection."""
        return bool(_LM_HEAD.search(self.name))

    @property
    def is_vision(self) -> bool:
        """True for parts of a vision or audio tower and its projector."""
        return bool(_VISION.search(self.name))

    @property
    def is_scale(self) -> bool:
        """True for what quantization stores beside the weights."""
        return self.name.endswith(_SCALES)

    @property
    def is_buffer(self) -> bool:
        """True for tables that are computed, not learned (rotary, causal masks)."""
        return self.name.endswith(("inv_freq", ".masked_bias")) or (
            self.name.endswith((".attn.bias", ".attention.bias")) and len(self.shape) > 2  # noqa: PLR2004 - a mask, not a bias vector
        )


@dataclass(frozen=True)
class TensorGroups:
    """Tensors of a checkpoint by the part of the model that they belong to."""

    main: list[TensorInfo]
    mtp: list[TensorInfo]
    vision: list[TensorInfo]
    unserved: list[TensorInfo]

    @property
    def layers(self) -> set[int]:
        """Indices of the decoder layers that have tensors."""
        return {tensor.layer for tensor in self.main if tensor.layer is not None}


def group_tensors(tensors: Iterable[TensorInfo], *, layers: int | None, tied: bool) -> TensorGroups:
    """Sort tensors by part.

    Args:
        tensors: All tensors of the checkpoint.
        layers: Decoder layers of the main model; later ones are MTP modules. None: unknown.
        tied: An output projection that repeats the embedding is stored but not served.
    """
    groups = TensorGroups(main=[], mtp=[], vision=[], unserved=[])
    for tensor in tensors:
        layer = tensor.layer
        if tensor.is_vision:
            groups.vision.append(tensor)
        elif tensor.is_buffer or (tied and tensor.is_lm_head):
            groups.unserved.append(tensor)
        elif re.search(r"(?:^|\.)mtp\.", tensor.name) or (
            layers is not None and layer is not None and layer >= layers
        ):
            groups.mtp.append(tensor)
        else:
            groups.main.append(tensor)
    return groups


def count_parameters(tensors: Iterable[TensorInfo]) -> int | None:
    """Return the number of weights, or None when some are packed (4-bit formats)."""
    total = 0
    for tensor in tensors:
        if tensor.is_scale:
            continue
        if not tensor.is_floating:
            if tensor.name.endswith(("weight", "qweight", "_packed", "_blocks")):
                return None
            continue
        total += tensor.elements
    return total


def stored_bytes(tensors: Iterable[TensorInfo]) -> int:
    """Return the bytes of the tensors' data."""
    return sum(tensor.size_bytes for tensor in tensors)
