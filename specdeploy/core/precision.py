"""Number formats in which weights are served, by the words people use."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from specdeploy.core.models import (
    PRECISION_OF_DTYPE,
    ModelSpec,
    ParameterBreakdown,
    QuantizationSpec,
)
from specdeploy.errors import ConfigError

# The value of every setting that is left to us.
AUTO: Final = "auto"
MatmulUnit = Literal["half", "fp8", "int8", "fp4"]
_HALF_BITS: Final = 16


@dataclass(frozen=True, slots=True)
class Precision:
    """One format: what a weight takes in memory, and which unit multiplies it.

    Attributes:
        name: The word of ``specdeploy.yaml``.
        weight_bits: Bits per quantized weight, group scales included.
        unit: The GPU unit whose rate bounds the matrix products; weight-only formats multiply
            in 16 bit.
        quantized: The embedding table and the LM head stay in 16 bit.
    """

    name: str
    weight_bits: Fraction
    unit: MatmulUnit
    quantized: bool = True


def _grouped(bits: int, scale_bits: int, group: int) -> Fraction:
    return bits + Fraction(scale_bits, group)


_PRECISIONS: Final = (
    Precision("fp32", Fraction(32), "half", quantized=False),
    Precision("bf16", Fraction(16), "half", quantized=False),
    Precision("fp16", Fraction(16), "half", quantized=False),
    Precision("fp8", Fraction(8), "fp8"),
    Precision("int8_wo", Fraction(8), "half"),
    Precision("int8_sq", Fraction(8), "int8"),
    Precision("int4_wo", _grouped(4, 16, 128), "half"),
    Precision("int4_awq", _grouped(4, 16, 128), "half"),
    Precision("w4a8", _grouped(4, 16, 128), "fp8"),
    Precision("nvfp4", _grouped(4, 8, 16), "fp4"),
)
PRECISIONS: Final = {precision.name: precision for precision in _PRECISIONS}
# As trtllm-build and quantize.py call them: int8 alone is weight-only.
_SPELLINGS: Final = {
    "int8": "int8_wo",
    "w8a16": "int8_wo",
    "int4": "int4_wo",
    "w4a16": "int4_wo",
    "w4a8_awq": "w4a8",
    "fp4": "nvfp4",
    **PRECISION_OF_DTYPE,
}
# How a checkpoint names what it holds -> the unit that multiplies it.
_STORED_UNITS: Final[dict[str, MatmulUnit]] = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "fp8_pb_wo": "fp8",
    "fp8_pc_pt": "fp8",
    "w8a8_sq_per_channel": "int8",
    "nvfp4": "fp4",
    "w4a8_awq": "fp8",
}


def precision_word(name: str) -> str:
    """Return the name in ``PRECISIONS`` of any spelling; an unknown one as it is."""
    word = name.lower().replace("-", "_")
    word = _SPELLINGS.get(word, word)
    return word if word in (*PRECISIONS, AUTO) else name


def find_precision(name: str) -> Precision:
    """Return the format called ``name``.

    Raises:
        ConfigError: there is no such format.
    """
    word = precision_word(name)
    if word not in PRECISIONS:
        raise ConfigError(f"precision {name!r} is not one of {', '.join(PRECISIONS)}")
    return PRECISIONS[word]


def stored_precision(spec: ModelSpec) -> Precision:
    """Return the format of a checkpoint's own weights.

    A quantized checkpoint has a format of its own, named as the checkpoint names it.

    Raises:
        ConfigError: the stored type is none that is served.
    """
    stored = spec.quantization
    if stored is None:
        return find_precision(spec.dtype)
    bits = Fraction(stored.bits or _HALF_BITS)
    unit = _STORED_UNITS.get(stored.method, "half")
    return Precision(stored.method, bits, unit)


def weight_bytes(spec: ModelSpec, precision: Precision) -> int:
    """Return the bytes of all weights of ``spec`` served in ``precision``, over all GPUs.

    Quantized weights keep the embedding table and the LM head in 16 bit. Served in the format
    that the checkpoint is stored in, they take what ``inspect`` reports. Another format stands
    for another checkpoint of the same model.
    """
    stored = spec.quantization
    if stored is not None and stored.method == precision.name and spec.weight_bytes is not None:
        return spec.weight_bytes
    kept = _kept_parameters(spec.breakdown) if precision.quantized else 0
    bits = precision.weight_bits * (spec.parameters - kept) + _HALF_BITS * kept
    return -(-bits.numerator // (8 * bits.denominator))


def resolve_precision(asked: str, spec: ModelSpec) -> Precision:
    """Return the format as asked, or for ``auto`` that of the checkpoint's own weights.

    Asking for the format that a quantized checkpoint already has is the same as ``auto``.

    Raises:
        ConfigError: there is no such format.
    """
    if asked == AUTO:
        return stored_precision(spec)
    found = find_precision(asked)
    if spec.quantization is not None and _same_format(found, spec.quantization):
        return stored_precision(spec)
    return found


def _same_format(asked: Precision, stored: QuantizationSpec) -> bool:
    word = stored.method.replace("-", "_")
    names = {_SPELLINGS.get(word, word), word}
    return asked.name in names or (
        asked.unit == _STORED_UNITS.get(stored.method) and int(asked.weight_bits) == stored.bits
    )


def _kept_parameters(parts: ParameterBreakdown | None) -> int:
    return parts.embedding + parts.lm_head if parts is not None else 0
