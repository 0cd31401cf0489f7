"""JSON files of a checkpoint, read strictly: what is broken is told, nothing is repaired."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Final

from specdeploy.errors import CheckpointError

LARGEST_CONFIG_BYTES: Final = 64 << 20
LARGEST_TOKENIZER_BYTES: Final = 512 << 20
_LFS_MARK: Final = b"version https://git-lfs"
LARGEST_POINTER_BYTES: Final = 1024
_BOM: Final = b"\xef\xbb\xbf"


def read_json_object(
    path: Path, *, largest: int = LARGEST_CONFIG_BYTES, unique_keys: bool = True
) -> dict[str, object]:
    """Return the JSON object in a file.

    Args:
        path: The file.
        largest: Refuse files above this many bytes.
        unique_keys: Refuse an object that names a key twice.

    Raises:
        CheckpointError: missing, unreadable, an LFS pointer, or not one strict JSON object.
    """
    data = read_small_file(path, largest=largest)
    return parse_json_object(data, source=path.name, unique_keys=unique_keys)


def read_optional_json(
    path: Path, *, largest: int = LARGEST_CONFIG_BYTES, unique_keys: bool = True
) -> dict[str, object] | None:
    """Return the JSON object in a file, or None when there is no file.

    Raises:
        CheckpointError: as `read_json_object`; a broken link is an error, not an absent file.
    """
    if not os.path.lexists(path):
        return None
    return read_json_object(path, largest=largest, unique_keys=unique_keys)


def parse_json_object(data: bytes, *, source: str, unique_keys: bool = True) -> dict[str, object]:
    """Return the JSON object that ``data`` holds; ``source`` names it in errors.

    Raises:
        CheckpointError: not UTF-8, a byte order mark, NaN or Infinity, a key given twice, or
            anything else that is not one JSON object.
    """
    if data.startswith(_BOM):
        raise CheckpointError(
            f"{source} begins with a byte order mark", hint="save it as UTF-8 without BOM"
        )
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique if unique_keys else None,
        )
        if unique_keys and b"\\ud" in data.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{source} is not UTF-8 (byte {error.start})") from error
    except UnicodeEncodeError as error:
        raise CheckpointError(f"{source} holds half of a surrogate pair") from error
    except RecursionError as error:
        raise CheckpointError(f"{source} is nested too deeply") from error
    except ValueError as error:
        raise CheckpointError(f"{source} is not valid JSON: {error!s:.120}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{source} should hold a JSON object, not {type(value).__name__}")
    return value


def read_small_file(path: Path, *, largest: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        CheckpointError: missing, not a file, unreadable, too large, or an LFS pointer.
    """
    size = file_size(path)
    if size > largest:
        raise CheckpointError(f"{path.name} has {size:,} bytes; at most {largest:,} are read")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if is_lfs_pointer(data):
        raise CheckpointError(
            f"{path.name} is a Git LFS pointer ({len(data)} bytes), not the file itself",
            hint="run `git lfs pull` in the checkpoint, or download it with `hf download`",
        )
    return data


def read_optional_file(path: Path, *, largest: int) -> bytes | None:
    """Return the content of a regular file, or None when there is none.

    Raises:
        CheckpointError: as `read_small_file`; a broken link is an error, not an absent file.
    """
    return read_small_file(path, largest=largest) if os.path.lexists(path) else None


def file_size(path: Path) -> int:
    """Return the size of a regular file, that of its target for a link.

    Raises:
        CheckpointError: there is none, or it is something else.
    """
    try:
        status = path.stat()
    except OSError as error:
        if path.is_symlink():
            raise broken_link(path) from error
        raise unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise CheckpointError(f"{path.name} in {path.parent} is {kind}")
    return status.st_size


def broken_link(path: Path) -> CheckpointError:
    """Return the error for a link whose target is missing, as in half a mounted cache."""
    target = os.readlink(path)  # noqa: PTH115 - the text of the link, unresolved
    folder = next(
        (part for part in path.absolute().parts if part.startswith("models--")),
        "models--org--name",
    )
    return CheckpointError(
        f"{path.name} is a broken link to {target}; mount the whole {folder} folder",
        hint="a Hub cache keeps the files in blobs/, beside snapshots/",
    )


def unreadable(path: Path, error: OSError) -> CheckpointError:
    """Return the error for a file that the operating system does not give."""
    return CheckpointError(f"cannot read {path}: {(error.strerror or str(error)).lower()}")


def is_lfs_pointer(data: bytes) -> bool:
    """Tell whether a file that begins so is the text that Git LFS leaves in its place."""
    return data.startswith(_LFS_MARK)


def pointer_size(data: bytes) -> int | None:
    """Return the size of the file that a pointer stands for."""
    match = re.search(rb"^size (\d{1,18})$", data, re.MULTILINE)
    return int(match[1]) if match else None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(name for name in table if names.count(name) > 1)
        raise ValueError(f"{twice!r:.60} is given twice")
    return table
