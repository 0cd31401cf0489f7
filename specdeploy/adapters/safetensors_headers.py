"""Headers of safetensors files: names, types and shapes, without reading any weight."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from specdeploy.adapters.json_files import (
    LARGEST_POINTER_BYTES,
    file_size,
    is_lfs_pointer,
    parse_json_object,
    unreadable,
)
from specdeploy.core.tensors import DTYPE_BITS, TensorInfo
from specdeploy.errors import CheckpointError

# The format's own limit.
LARGEST_HEADER_BYTES: Final = 100_000_000
_LENGTH_BYTES: Final = 8
_LARGEST_DIMENSION: Final = 1 << 48
_BITS_PER_BYTE: Final = 8


class LfsPointerError(CheckpointError):
    """A weight file is the pointer that Git LFS leaves in its place."""

    def __init__(self, path: Path, pointer: bytes) -> None:
        super().__init__(f"{path.name} is a Git LFS pointer ({len(pointer)} bytes)")
        self.path, self.pointer = path, pointer


def read_header(path: Path) -> list[TensorInfo]:
    """Return the tensors of a safetensors file, in the file's order.

    Raises:
        LfsPointerError: the file is a Git LFS pointer.
        CheckpointError: missing, truncated, or not a safetensors file.
    """
    size = file_size(path)
    try:
        with path.open("rb") as file:
            start = file.read(LARGEST_POINTER_BYTES)
            length = _header_length(path, start, size)
            file.seek(_LENGTH_BYTES)
            header = file.read(length)
    except OSError as error:
        raise unreadable(path, error) from error
    table = parse_json_object(header, source=f"the header of {path.name}")
    table.pop("__metadata__", None)
    tensors = [_tensor(path, name, entry) for name, entry in table.items()]
    _check_data(path, tensors, table, available=size - _LENGTH_BYTES - length)
    return tensors


def _header_length(path: Path, start: bytes, size: int) -> int:
    if is_lfs_pointer(start):
        raise LfsPointerError(path, start)
    if len(start) < _LENGTH_BYTES:
        raise CheckpointError(f"{path.name} is truncated: it has {size} bytes")
    length: int = struct.unpack_from("<Q", start)[0]
    if length > LARGEST_HEADER_BYTES:
        raise CheckpointError(
            f"{path.name} is not a safetensors file: it announces a header of {length:,} bytes"
        )
    if _LENGTH_BYTES + length > size:
        raise CheckpointError(
            f"{path.name} is truncated: its header takes {length:,} bytes, the file has {size:,}"
        )
    return length


def _tensor(path: Path, name: str, entry: object) -> TensorInfo:
    wrong = CheckpointError(f"{path.name}: the header entry of {name!r:.80} is malformed")
    if not isinstance(entry, dict):
        raise wrong
    dtype, shape = entry.get("dtype"), entry.get("shape")
    begin, end = _offsets(entry, wrong)
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise CheckpointError(f"{path.name}: {name!r:.80} has the unknown dtype {dtype!r:.40}")
    if not isinstance(shape, list) or not all(_is_size(item) for item in shape):
        raise wrong
    tensor = TensorInfo(name=name, dtype=dtype, shape=tuple(shape), size_bytes=end - begin)
    if tensor.elements * DTYPE_BITS[dtype] != tensor.size_bytes * _BITS_PER_BYTE:
        raise CheckpointError(
            f"{path.name}: {name!r:.80} has {tensor.size_bytes:,} bytes, "
            f"which are not {dtype} of shape {list(tensor.shape)}"
        )
    return tensor


def _offsets(entry: Mapping[str, object], wrong: CheckpointError) -> tuple[int, int]:
    offsets = entry.get("data_offsets")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):  # noqa: PLR2004 - begin and end
        raise wrong
    begin, end = offsets
    if begin > end:
        raise wrong
    return begin, end


def _check_data(
    path: Path, tensors: list[TensorInfo], table: Mapping[str, object], *, available: int
) -> None:
    needed = max((_end(entry) for entry in table.values()), default=0)
    if needed > available:
        raise CheckpointError(
            f"{path.name} is truncated: its tensors take {needed:,} bytes, "
            f"the file holds {available:,}",
            hint="download it again",
        )
    held = sum(tensor.size_bytes for tensor in tensors)
    if held != available:
        raise CheckpointError(
            f"{path.name} is malformed: its tensors take {held:,} of {available:,} bytes"
        )


def _end(entry: object) -> int:
    assert isinstance(entry, dict)  # noqa: S101 - checked when the entry was read
    end: int = entry["data_offsets"][1]
    return end


def _is_size(value: object) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_DIMENSION
    )
