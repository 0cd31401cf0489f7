"""Directories, files and links that change in one step and outlive a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from specdeploy.core.record import Document
from specdeploy.errors import ConfigError
from specdeploy.units import format_bytes

STAGING_MARK: Final = ".staging-"


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a failure to write into an error that names the file and says what to do.

    Raises:
        ConfigError: instead of any OSError.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"cannot write {error.filename or path}: {reason}", hint=_advice(error, path)
        ) from error


@contextlib.contextmanager
def staged_directory(destination: Path) -> Iterator[Path]:
    """Give an empty sibling of ``destination`` that takes its place when the block succeeds.

    Whatever stood there is replaced. When the block fails the sibling is removed.

    Raises:
        ConfigError: a directory cannot be written.
    """
    directory = staging_sibling(destination)
    try:
        with explained(directory):
            directory.mkdir(parents=True)
        yield directory
        with explained(destination):
            _move_into_place(directory, destination)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_record(directory: Path, name: str, document: Document) -> None:
    """Bring every file to the disk, then write the record that declares them whole.

    Raises:
        ConfigError: it cannot be written.
    """
    with explained(directory / name):
        for folder, _, files in os.walk(directory):
            for file in files:
                _sync(Path(folder, file))
            _sync(Path(folder))
        with (directory / name).open("x", encoding="utf-8") as stream:
            stream.write(document.model_dump_json(indent=2) + "\n")
        _sync(directory / name)
        _sync(directory)


def replace_file(path: Path, text: str) -> None:
    """Make ``path`` hold ``text`` in one step; its folder is made.

    Raises:
        ConfigError: it cannot be written.
    """
    fresh = staging_sibling(path)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(text, encoding="utf-8")
            _sync(fresh)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
        _sync(path.parent)


def next_log(folder: Path, name: str) -> Path:
    """Return the next log file of a folder, ``NNNN-<name>.log``; the folder is made.

    Raises:
        ConfigError: the folder cannot be made.
    """
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        found = (path.name.partition("-")[0] for path in folder.glob("*-*.log"))
        numbers = [int(number) for number in found if number.isdecimal()]
    return folder / f"{max(numbers, default=0) + 1:04d}-{name}.log"


def replace_link(link: Path, target: Path) -> None:
    """Make ``link`` a relative symbolic link to ``target``, whatever it pointed to.

    Raises:
        ConfigError: something other than a link stands in the way, or it cannot be written.
    """
    if link.exists() and not link.is_symlink():
        raise ConfigError(
            f"{link} is not the link that a build makes, and is left alone",
            hint="move it away, then build again",
        )
    fresh = staging_sibling(link)
    with explained(link):
        fresh.symlink_to(os.path.relpath(target, link.parent))
        fresh.replace(link)
        _sync(link.parent)


def staging_sibling(destination: Path) -> Path:
    """Return a new name beside ``destination`` that marks something unfinished."""
    return destination.with_name(f".{destination.name}{STAGING_MARK}{secrets.token_hex(4)}")


def remove_tree(path: Path) -> None:
    """Remove a link or a directory; what cannot be removed now is left for the next time."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _move_into_place(directory: Path, destination: Path) -> None:
    if destination.exists():
        # Only a damaged artifact is ever replaced; between the two renames there is none.
        discarded = staging_sibling(destination)
        destination.rename(discarded)
        directory.rename(destination)
        remove_tree(discarded)
    else:
        directory.rename(destination)
    _sync(destination.parent)
    _sync(destination.parent.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _advice(error: OSError, path: Path) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"{_free(path)}; make room, or set another workspace"
    return "make it writable, or set another workspace (`workspace:` in the file)"


def _free(path: Path) -> str:
    for folder in (path, *path.parents):
        with contextlib.suppress(OSError):
            return f"{format_bytes(shutil.disk_usage(folder).free)} are free in {folder}"
    return "the disk is full"
