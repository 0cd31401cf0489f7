"""The workspace: where everything lies, and one writer at a time.

::

    engines/<digest>/<role>/    content-addressed; manifest.json is written last
    repositories/<digest>/      content-addressed; repository.json is written last
    repository                  symbolic link to the current one, replaced in one step
    logs/NNNN-<name>.log        one per external command
    build.lock                  held by the kernel for the writer: a dead one holds nothing
    hashes.json                 digests of files that did not change since they were read

The digest of an engine is that of its own step, so a pair with another draft keeps its
target. A running server keeps the repository it was started from, because a new one is a
new directory, and a build removes only what no server uses.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, final

from specdeploy.adapters.artifact_files import read_manifest
from specdeploy.adapters.durable import (
    STAGING_MARK,
    explained,
    next_log,
    remove_tree,
    replace_link,
    staged_directory,
    write_record,
)
from specdeploy.adapters.server_records import LocalServerRecords
from specdeploy.adapters.superseded import remove_unused
from specdeploy.core.artifacts import (
    MANIFEST,
    REPOSITORIES,
    REPOSITORY_LINK,
    directory_name,
)
from specdeploy.core.build import EngineManifest, Role
from specdeploy.core.record import Document
from specdeploy.errors import ArtifactError, ConfigError
from specdeploy.events import Reporter

HASHES: Final = "hashes.json"
TELL_AFTER_S: Final = 1.0
POLL_S: Final = 0.05
LOG_END_BYTES: Final = 1 << 16


@final
class Workspace:
    """One workspace directory.

    Args:
        root: The directory; made when something is first written.
        reporter: Hears about waiting and about what interrupted builds left.
        lock_timeout_s: How long to wait for another writer.
    """

    def __init__(self, root: Path, *, reporter: Reporter, lock_timeout_s: float = 0.0) -> None:
        self._root = root
        self._reporter = reporter
        self._lock_timeout_s = lock_timeout_s

    @property
    def root(self) -> Path:
        """The directory itself."""
        return self._root

    @property
    def repository(self) -> Path:
        """Where the current repository is found, whichever it is."""
        return self._root / REPOSITORY_LINK

    def engine_directory(self, role: Role, plan_digest: str) -> Path:
        """Return where the artifact of a step belongs."""
        return self._root / "engines" / directory_name(plan_digest) / role

    def repository_directory(self, digest: str) -> Path:
        """Return where a rendered repository belongs."""
        return self._root / REPOSITORIES / directory_name(digest)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the workspace for one writer; remove what interrupted ones left.

        Raises:
            ConfigError: it cannot be written, or another writer did not finish in time.
        """
        file = self._root / "build.lock"
        with explained(file):
            self._root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with explained(file):
                self._wait_for(descriptor)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                self._remove_leftovers()
            yield
        finally:
            os.close(descriptor)

    def staging(self, destination: Path) -> AbstractContextManager[Path]:
        """Give an empty sibling of ``destination`` that takes its place on success.

        Raises:
            ConfigError: a directory cannot be written.
        """
        return staged_directory(destination)

    def write_file(self, path: Path, content: bytes) -> None:
        """Write one file of a staging directory.

        Raises:
            ConfigError: it cannot be written.
        """
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def make_directory(self, path: Path) -> None:
        """Make one directory of a staging directory.

        Raises:
            ConfigError: it cannot be written.
        """
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)

    def seal(self, directory: Path, name: str, document: Document) -> None:
        """Write the record that declares a directory whole, after all else is on the disk.

        Raises:
            ConfigError: it cannot be written.
        """
        write_record(directory, name, document)

    def publish_repository(self, directory: Path) -> None:
        """Make ``directory`` the current repository.

        Raises:
            ConfigError: something that is no link of ours stands in the way.
        """
        replace_link(self.repository, directory)

    def next_log(self, name: str) -> Path:
        """Return the next numbered log file; call it with the lock held.

        Raises:
            ConfigError: the folder cannot be made.
        """
        return next_log(self._root / "logs", name)

    def free_bytes(self) -> int:
        """Return the room that is left on the workspace's disk; the folder must exist.

        Raises:
            ConfigError: the system does not tell.
        """
        with explained(self._root):
            return shutil.disk_usage(self._root).free

    def read_log(self, log: Path) -> str:
        """Return the end of a log; empty when it cannot be read."""
        try:
            with log.open("rb") as file:
                file.seek(max(0, log.stat().st_size - LOG_END_BYTES))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def current_repository(self) -> Path | None:
        """Return the directory that ``repository`` stands for now, if any."""
        return self.repository.resolve() if self.repository.exists() else None

    def served_repository(self) -> Path | None:
        """Return what the workspace's recorded server serves, if there is one.

        A server that is gone counts too: its record may be that of another host.

        Raises:
            ArtifactError: the record cannot be read.
        """
        record = LocalServerRecords(self._root).read()
        return Path(record.repository) if record else None

    def remove_all_but(self, keep: Collection[Path]) -> list[Path]:
        """Remove artifacts that are not in ``keep`` and that no process uses; return them."""
        return remove_unused(self._root, keep)

    def manifests(self, role: Role) -> list[EngineManifest]:
        """Return the readable manifests of a role, newest first."""
        files = list(self._root.glob(f"engines/*/{role}/{MANIFEST}"))
        found: list[EngineManifest] = []
        for file in sorted(files, key=lambda f: f.stat().st_mtime_ns, reverse=True):
            with contextlib.suppress(ArtifactError):
                found.append(read_manifest(file.parent))
        return found

    def _wait_for(self, descriptor: int) -> None:
        started, told = time.monotonic(), False
        while not _try_lock(descriptor):
            waited = time.monotonic() - started
            if waited >= self._lock_timeout_s:
                raise ConfigError(
                    f"another build ({_holder(descriptor)}) is writing to {self._root}",
                    hint="wait for it, or allow more time with --lock-timeout",
                )
            if waited > TELL_AFTER_S and not told:
                self._reporter.note(f"waiting for another build ({_holder(descriptor)})")
                told = True
            time.sleep(POLL_S)

    def _remove_leftovers(self) -> None:
        for pattern in ("engines/*/", f"{REPOSITORIES}/", ""):
            for path in self._root.glob(f"{pattern}.*{STAGING_MARK}*"):
                self._reporter.note(f"removing {path}, left by an interrupted build")
                remove_tree(path)
        for folder in self._root.glob("engines/*/"):
            # Succeeds for an empty one only.
            with contextlib.suppress(OSError):
                folder.rmdir()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            return False
        raise
    return True


def _holder(descriptor: int) -> str:
    pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return f"process {pid}" if pid else "just starting"
