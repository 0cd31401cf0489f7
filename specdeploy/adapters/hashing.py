"""Content of files, by SHA-256; a large file that did not change is not read again.

A digest is remembered under everything the kernel tells about a file's content: device,
inode, size, modification time and change time. The change time cannot be set by a program,
so a file edited in place and given its old date back is read again. A file that changed
within the clock's resolution of being read is never remembered.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

from specdeploy.adapters.checkpoints import (
    SIDE_FILES,
    checked_directory,
    list_pickles,
    list_weight_files,
)
from specdeploy.adapters.durable import replace_file
from specdeploy.core.build import InputFile
from specdeploy.core.repository import FileEntry
from specdeploy.errors import ArtifactError, CheckpointError, ConfigError

CHUNK_BYTES: Final = 1 << 20
SETTLED_S: Final = 2.0
REMEMBERED_FILES: Final = 4096


@final
class FileHasher:
    """Hashes files, with a memory in ``memory_file`` (None: for this process only)."""

    def __init__(
        self, memory_file: Path | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = memory_file
        self._clock = clock
        self._known = _read_memory(memory_file)

    def checkpoint_inputs(self, directory: Path) -> list[InputFile]:
        """Hash what a converter reads from a checkpoint, in a fixed order.

        Raises:
            CheckpointError: a file is missing, unreadable or not a regular file.
        """
        try:
            return [self._input(path) for path in checkpoint_files(directory)]
        except OSError as error:
            raise CheckpointError(f"{error.filename or directory}: {error.strerror}") from error

    def entries(self, directory: Path, *, without: str) -> list[FileEntry]:
        """Hash every file below a directory, except the one named ``without`` at its top.

        Raises:
            OSError: a file cannot be read.
        """
        return [self._entry(p, directory) for p in files_below(directory, without=without)]

    def save(self) -> None:
        """Write the memory; it is only a shortcut, so a failure to write it is none."""
        if self._file is None:
            return
        everything = {**_read_memory(self._file), **self._known}
        recent = dict(list(everything.items())[-REMEMBERED_FILES:])
        with contextlib.suppress(ConfigError):
            replace_file(self._file, json.dumps(recent))

    def _input(self, path: Path) -> InputFile:
        size, digest = self._hash(path)
        return InputFile(path=str(path), size_bytes=size, sha256=digest)

    def _entry(self, path: Path, root: Path) -> FileEntry:
        size, digest = self._hash(path)
        return FileEntry(path=path.relative_to(root).as_posix(), size_bytes=size, sha256=digest)

    def _hash(self, path: Path) -> tuple[int, str]:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
            before, now = os.fstat(file.fileno()), self._clock()
            if not stat.S_ISREG(before.st_mode):
                raise OSError(0, "it is not a regular file", str(path))
            key = _identity(before)
            digest = self._known.pop(key, None) or sha256_of(file.read)
            if _identity(os.fstat(file.fileno())) != key:
                raise ArtifactError(f"{path} changed while it was read", hint="try again")
        if now - max(before.st_mtime, before.st_ctime) > SETTLED_S:
            self._known[key] = digest
        return before.st_size, digest


def checkpoint_files(directory: Path) -> list[Path]:
    """Return the weights and side files of a checkpoint, sorted by name.

    Raises:
        CheckpointError: the directory or a file that it must hold is missing.
    """
    weights = list_weight_files(checked_directory(directory))
    if not weights:
        raise _no_weights(directory)
    sides = [p for p in directory.iterdir() if p.name.endswith(SIDE_FILES) and p.is_file()]
    return sorted({*weights, *sides})


def files_below(directory: Path, *, without: str) -> Iterator[Path]:
    """Yield every file below a directory, sorted, except ``without`` at its top.

    What Python compiles beside the models of a served repository is no part of it.
    """
    for path in sorted(directory.rglob("*")):
        is_file = path.is_symlink() or not path.is_dir()
        if is_file and path != directory / without and path.parent.name != "__pycache__":
            yield path


def _no_weights(directory: Path) -> CheckpointError:
    for pickle in list_pickles(directory):
        return CheckpointError(
            f"{directory} holds {pickle.name}, a pickle, which is never loaded",
            hint="convert it where you trust it: load the model with transformers, then "
            "model.save_pretrained(folder)",
        )
    return CheckpointError(f"{directory} holds no safetensors weights")


def sha256_of(read: Callable[[int], bytes]) -> str:
    """Return the SHA-256 (hex) of what ``read(count)`` yields until it yields nothing."""
    digest = hashlib.sha256()
    while block := read(CHUNK_BYTES):
        digest.update(block)
    return digest.hexdigest()


def _identity(status: os.stat_result) -> str:
    parts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return ":".join(map(str, parts))


def _read_memory(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    valid = isinstance(known, dict) and all(isinstance(v, str) for v in known.values())
    return known if valid else {}
