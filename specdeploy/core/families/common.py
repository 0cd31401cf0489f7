"""Facts that every family states in the same keys: context, rope, special ids, dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specdeploy.core.families.facts import ConfigFacts, as_number, as_table, as_word, bounded, shown
from specdeploy.core.models import RopeSpec, SpecialIds
from specdeploy.errors import CheckpointError

DTYPE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
_DTYPE_NAMES: Final = {
    "float": "float32",
    "fp32": "float32",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
}
_LARGEST_FACTOR: Final = 1e6
_STORED: Final = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def read_dtype(facts: ConfigFacts, stored: Mapping[str, int]) -> tuple[str, str | None]:
    """Return the 16- or 32-bit type of the weights, and a note when it was not declared.

    Args:
        facts: The config.
        stored: Bytes per dtype in the headers; empty without weight files.
    """
    declared = facts.text("torch_dtype")
    if declared is not None:
        name = declared.removeprefix("torch.")
        name = _DTYPE_NAMES.get(name, name)
        if name not in DTYPE_BYTES:
            raise CheckpointError(
                f"config.json: torch_dtype {shown(declared)} is not one of {', '.join(DTYPE_BYTES)}"
            )
        return name, None
    plain = {dtype: size for dtype, size in stored.items() if dtype in _STORED}
    if plain:
        return _STORED[max(plain, key=lambda dtype: plain[dtype])], None
    return "bfloat16", "config.json names no dtype; 16 bit (bfloat16) is assumed"


def read_rope(facts: ConfigFacts) -> RopeSpec:
    """Return the rotary settings from rope_scaling or rope_parameters.

    Accepted: null, ``type`` or ``rope_type``, and one dict per layer type (the one of full
    attention counts). The factor never raises the declared context.
    """
    table = facts.table("rope_scaling") or facts.table("rope_parameters")
    if not table:
        return RopeSpec()
    for key in ("full_attention", "sliding_attention"):
        table = as_table(table.get(key), key=key) or table
        if "rope_type" in table or "type" in table:
            break
    kind = table.get("rope_type", table.get("type", "default"))
    original = table.get("original_max_position_embeddings")
    return RopeSpec(
        kind=as_word(kind, key="rope_type"),
        factor=None
        if table.get("factor") is None
        else as_number(table["factor"], key="rope factor", most=_LARGEST_FACTOR),
        original_context_length=None
        if original is None
        else bounded(original, key="max_position_embeddings"),
    )


def read_special_ids(facts: ConfigFacts, generation: Mapping[str, object] | None) -> SpecialIds:
    """Return bos, eos and pad ids; eos is a list whether or not the file writes one."""
    generation = generation or {}
    return SpecialIds(
        bos=_one_id(facts.get("bos_token_id"), key="bos_token_id"),
        eos=_id_list(facts.get("eos_token_id"), key="eos_token_id"),
        pad=_one_id(facts.get("pad_token_id"), key="pad_token_id"),
        generation_eos=_id_list(generation.get("eos_token_id"), key="eos_token_id"),
    )


def _one_id(value: object, *, key: str) -> int | None:
    ids = _id_list(value, key=key)
    return ids[0] if ids else None


def _id_list(value: object, *, key: str) -> list[int]:
    """Read an id, a list of ids, null or a negative number (both mean: none)."""
    items = value if isinstance(value, list) else [value]
    return [
        bounded(item, key=key, least=0)
        for item in items
        if item is not None and not (isinstance(item, int) and item < 0)
    ]
