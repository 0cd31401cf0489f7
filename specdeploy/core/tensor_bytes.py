"""Tensor values to and from the raw bytes of Triton's gRPC protocol."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

TensorValue = int | float | bool | bytes

# Triton data type -> struct format of one little-endian element.
_FORMATS: Final[dict[str, str]] = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}


def encode_tensor(datatype: str, values: Sequence[TensorValue]) -> bytes:
    """Return the raw bytes of ``values``.

    Raises:
        ValueError: an unknown datatype, or a value that it cannot hold.
    """
    if datatype == "BYTES":
        texts = [value for value in values if isinstance(value, bytes)]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    try:
        return struct.pack(f"<{len(values)}{_format(datatype)}", *values)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{list(values)} does not fit {datatype}: {error}") from error


def decode_tensor(datatype: str, raw: bytes) -> list[TensorValue]:
    """Return the values in ``raw``; no bytes are no values.

    Raises:
        ValueError: an unknown datatype, or bytes that end within an element.
    """
    if datatype == "BYTES":
        return list(_read_texts(raw))
    element = "<" + _format(datatype)
    try:
        return [value for (value,) in struct.iter_unpack(element, raw)]
    except struct.error as error:
        raise ValueError(f"{len(raw)} bytes are not whole {datatype} elements") from error


def _format(datatype: str) -> str:
    if datatype not in _FORMATS:
        raise ValueError(f"tensors of type {datatype} are not supported")
    return _FORMATS[datatype]


def _read_texts(raw: bytes) -> list[bytes]:
    texts, position = [], 0
    while position < len(raw):
        end = position + 4 + int.from_bytes(raw[position : position + 4], "little")
        if position + 4 > len(raw) or end > len(raw):
            raise ValueError("a BYTES tensor ends within an element")
        texts.append(raw[position + 4 : end])
        position = end
    return texts
