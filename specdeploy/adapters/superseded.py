"""Removes the engines and repositories of a workspace that nothing uses any more."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from specdeploy.adapters.durable import remove_tree, staging_sibling
from specdeploy.adapters.procfs import command_lines
from specdeploy.core.artifacts import REPOSITORIES

# The beginning of a digest; what somebody else put there is left alone.
_OURS: Final = re.compile(r"[0-9a-f]{16}")


def remove_unused(root: Path, keep: Collection[Path]) -> list[Path]:
    """Remove what is not kept and what no process names; return what was removed.

    Compared are the directories' own names, which are digests: the same workspace may be
    written in several ways, in records and on command lines. Where processes cannot be
    listed nothing is removed.

    Args:
        root: The workspace, which is locked.
        keep: Artifacts, and files inside them.
    """
    running = command_lines()
    if running is None:
        return []
    kept = {part for path in keep for part in path.parts}
    unused = [
        directory
        for directory in _artifacts(root)
        if directory.name not in kept and not any(directory.name in line for line in running)
    ]
    return [directory for directory in unused if _remove(directory, root)]


def _artifacts(root: Path) -> Iterator[Path]:
    for folder in ("engines", REPOSITORIES):
        for directory in sorted((root / folder).glob("*/")):
            if _OURS.fullmatch(directory.name) and not directory.is_symlink():
                yield directory


def _remove(directory: Path, root: Path) -> bool:
    # Out of sight in one step: half an artifact would look like a damaged one.
    discarded = staging_sibling(root / directory.name)
    try:
        directory.rename(discarded)
    except OSError:
        return False
    remove_tree(discarded)
    return True
