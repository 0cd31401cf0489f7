"""How a checkpoint says that it is quantized, and what that makes of its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

from specdeploy.core.families.facts import as_table, as_word, bounded
from specdeploy.core.models import ParameterBreakdown, QuantizationSpec

# quant_method (or quant_algo, lower case) -> bits per weight.
_METHOD_BITS: Final = {
    "fp8": 8,
    "fbgemm_fp8": 8,
    "fp8_pb_wo": 8,
    "fp8_pc_pt": 8,
    "w8a8_sq_per_channel": 8,
    "w8a16": 8,
    "int8": 8,
    "mxfp4": 4,
    "nvfp4": 4,
    "w4a16": 4,
    "w4a16_awq": 4,
    "w4a8_awq": 4,
    "awq": 4,
    "gptq": 4,
}
_FIXED_GROUPS: Final = {"mxfp4": 32, "nvfp4": 16}
_SIXTEEN_BIT: Final = 16
# An 8-bit scale per group; the others keep a 16-bit scale (and often a zero point).
_BYTE_SCALES: Final = frozenset({"mxfp4", "nvfp4"})


def describe_quantization(
    declared: Mapping[str, object] | None, separate: Mapping[str, object] | None
) -> QuantizationSpec | None:
    """Return the quantization of a checkpoint, or None.

    Args:
        declared: ``quantization_config`` of config.json.
        separate: ``hf_quant_config.json`` (ModelOpt), which wins for what it states.
    """
    facts: dict[str, object] = dict(declared or {})
    if separate is not None:
        facts.update(as_table(separate.get("quantization"), key="quantization") or {})
    if not facts:
        return None
    method = _method(facts)
    weights = _weight_scheme(facts)
    bits = _first_whole(facts, weights, keys=("bits", "num_bits", "w_bit"))
    group = _first_whole(facts, weights, keys=("group_size", "q_group_size"), least=-1)
    return QuantizationSpec(
        method=method,
        bits=bits or _METHOD_BITS.get(method),
        group_size=group if group and group > 0 else _FIXED_GROUPS.get(method),
        kv_dtype=_kv_dtype(facts),
        unconverted=list(_unconverted(facts)),
    )


def served_bytes(
    parts: ParameterBreakdown, *, dtype_bytes: int, quantization: QuantizationSpec | None
) -> int | None:
    """Return the weights' bytes in GPU memory, or None when the bits are not known.

    Quantized weights keep the embedding table and the LM head in 16 bit, and what the
    checkpoint lists as not converted. MXFP4 converts the routed experts only.
    """
    total = parts.total
    if quantization is None:
        return total * dtype_bytes
    if quantization.bits is None:
        return None
    kept = parts.embedding + parts.lm_head
    if quantization.method == "mxfp4":
        kept = total - parts.experts
    elif any("*" in name and "self_attn" in name for name in quantization.unconverted):
        kept += parts.attention
    bits = _bits_with_scales(quantization) * (total - kept) + _SIXTEEN_BIT * kept
    return -(-bits.numerator // (8 * bits.denominator))


def _bits_with_scales(quantization: QuantizationSpec) -> Fraction:
    bits = Fraction(quantization.bits or 0)
    if bits >= 8 or not quantization.group_size:  # noqa: PLR2004 - 8-bit scales are negligible
        return bits
    scale = 8 if quantization.method in _BYTE_SCALES else _SIXTEEN_BIT
    return bits + Fraction(scale, quantization.group_size)


def _method(facts: Mapping[str, object]) -> str:
    for key in ("quant_algo", "quant_method"):
        if facts.get(key):
            return as_word(facts[key], key=key).lower()
    if facts.get("load_in_4bit") or facts.get("load_in_8bit"):
        return "bitsandbytes"
    return "unknown"


def _weight_scheme(facts: Mapping[str, object]) -> Mapping[str, object]:
    if facts.get("load_in_4bit") is True:
        return {"bits": 4}
    if facts.get("load_in_8bit") is True:
        return {"bits": 8}
    groups = as_table(facts.get("config_groups"), key="config_groups") or {}
    tables = [as_table(group, key="config_groups") or {} for group in groups.values()]
    schemes = [as_table(table.get("weights"), key="weights") or {} for table in tables]
    # Groups of different widths have no one number of bits.
    same = len({str(scheme.get("num_bits")) for scheme in schemes}) == 1
    return schemes[0] if same else {}


def _first_whole(
    *tables: Mapping[str, object], keys: tuple[str, ...], least: int = 1
) -> int | None:
    for table in tables:
        for key in keys:
            if table.get(key) is not None:
                return bounded(table[key], key=key, least=least)
    return None


def _kv_dtype(facts: Mapping[str, object]) -> str | None:
    algorithm = facts.get("kv_cache_quant_algo")
    if isinstance(algorithm, str) and algorithm.lower() not in {"none", ""}:
        return algorithm.lower()
    scheme = as_table(facts.get("kv_cache_scheme"), key="kv_cache_scheme")
    if scheme is None:
        return None
    bits = bounded(scheme.get("num_bits"), key="num_bits")
    return f"fp{bits}" if scheme.get("type") == "float" else f"int{bits}"


def _unconverted(facts: Mapping[str, object]) -> Iterator[str]:
    for key in ("modules_to_not_convert", "exclude_modules", "ignore", "ignored_layers"):
        names = facts.get(key)
        if isinstance(names, list):
            yield from (name for name in names if isinstance(name, str))
