"""Bytes that the KV cache takes per token, on one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from specdeploy.core.models import PRECISION_OF_DTYPE, KvLayers, ModelSpec
from specdeploy.core.precision import AUTO
from specdeploy.errors import CheckpointError, ConfigError

# Bits per value. The block scales of 4-bit types are not counted.
KV_BITS: Final = {
    "fp32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "int4": 4,
    "fp4": 4,
    "nvfp4": 4,
}
_SPELLINGS: Final = {
    **PRECISION_OF_DTYPE,
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "float8_e4m3fn": "fp8",
}


def resolve_kv_dtype(asked: str, spec: ModelSpec) -> str:
    """Return the KV type: as asked, or for ``auto`` as the checkpoint declares, else 16 bit.

    Raises:
        ConfigError: there is no such type.
        CheckpointError: the checkpoint declares one that is not known.
    """
    name = _SPELLINGS.get(asked.lower(), asked.lower())
    if name in KV_BITS:
        return name
    if name != AUTO:
        raise ConfigError(f"KV type {asked!r} is not one of {AUTO}, {', '.join(KV_BITS)}")
    declared = spec.quantization.kv_dtype if spec.quantization else None
    if declared is None:
        return "fp16" if spec.dtype == "float16" else "bf16"
    name = _SPELLINGS.get(declared, declared)
    if name not in KV_BITS:
        raise CheckpointError(
            f"the checkpoint declares the KV type {declared!r:.40}, which is not known",
            hint="say which one to plan for with --kv-dtype",
        )
    return name


def heads_per_gpu(heads: int, tp: int) -> int:
    """Return the KV heads that each of ``tp`` GPUs holds; fewer heads than GPUs are copied.

    Raises:
        ConfigError: neither of the two divides the other.
    """
    if heads % tp and tp % heads:
        raise ConfigError(
            f"{heads} KV heads cannot be spread over tp {tp}: neither divides the other",
            hint=f"use a tp that divides {heads}, or a multiple of it",
        )
    return -(-heads // tp)


def kv_bytes_per_token(
    layers: Sequence[KvLayers], *, kv_dtype: str, tp: int = 1, beyond_window: bool = False
) -> int:
    """Return the bytes per token and GPU.

    ``layers * KV heads per GPU * values per head * bytes``; 2 x head_dim values for ordinary
    attention, the latent width (one head that is never split) for MLA.

    Args:
        layers: The model's layers by KV width.
        kv_dtype: A key of ``KV_BITS``.
        tp: GPUs that share the heads.
        beyond_window: Count only the layers that go on growing past every window.
    """
    values = sum(
        group.layers * heads_per_gpu(group.width.kv_heads, tp) * group.width.values_per_head
        for group in layers
        if not (beyond_window and group.width.window)
    )
    return -(-values * KV_BITS[kv_dtype] // 8)
