"""Models of the Hugging Face Hub: from the local cache, else downloaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, final

from specdeploy.adapters.checkpoints import (
    CONFIG,
    SIDE_FILES,
    TOKENIZER_FILES,
    list_weight_files,
)
from specdeploy.errors import CheckpointError, ConfigError

_PLANNING: Final = tuple(f"*{ending}" for ending in SIDE_FILES)
_WEIGHTS: Final = ("*.safetensors", "*.safetensors.index.json")
# The same weights once more, under names that only their authors' own code reads.
_COPIES: Final = ("consolidated*", "original/*")


@final
class HubFiles:
    """Finds the files of Hub ids with huggingface_hub, when that is installed.

    ``weights`` asks for the weight files too. Without it an index is left out as well, for
    an index without its shards is a broken checkpoint.
    """

    def __init__(self, *, weights: bool = False) -> None:
        self._weights = weights

    def resolve(self, repo_id: str) -> Path:
        """Return the local directory of ``owner/name``.

        Raises:
            ConfigError: not cached and not reachable; the hint says how to download it.
        """
        cached = self._cached(repo_id)
        if cached is not None and self._is_enough(cached):
            return cached
        try:
            return self._download(repo_id)
        except ConfigError:
            if cached is not None and (cached / CONFIG).exists() and not self._weights:
                return cached
            raise

    def _cached(self, repo_id: str) -> Path | None:
        try:
            return _snapshot(repo_id, local_files_only=True, weights=self._weights)
        except ImportError as error:
            raise ConfigError("huggingface_hub is not installed", hint=_hint(repo_id)) from error
        except Exception:  # noqa: BLE001 - the library's, its HTTP client's or the system's: no copy
            return None

    def _is_enough(self, directory: Path) -> bool:
        if not (directory / CONFIG).exists():
            return False
        if not self._weights:
            return any((directory / name).exists() for name in TOKENIZER_FILES)
        try:
            files = list_weight_files(directory)
        except CheckpointError:
            return False
        return bool(files) and all(path.exists() for path in files)

    def _download(self, repo_id: str) -> Path:
        try:
            return _snapshot(repo_id, local_files_only=False, weights=self._weights)
        except Exception as error:  # the library's, its HTTP client's or the system's
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise ConfigError(
                f"{repo_id} is not cached and cannot be downloaded: {reason[0]:.200}",
                hint=_hint(repo_id),
            ) from error


def _snapshot(repo_id: str, *, local_files_only: bool, weights: bool) -> Path:
    # Not part of the core install, and slow to import.
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

    if not sys.stderr.isatty():
        disable_progress_bars()
    directory = snapshot_download(
        repo_id,
        local_files_only=local_files_only,
        allow_patterns=[*_PLANNING, *(_WEIGHTS if weights else ())],
        ignore_patterns=[*_COPIES, *(() if weights else ("*.safetensors.index.json",))],
    )
    return Path(directory)


def _hint(repo_id: str) -> str:
    name = repo_id.rsplit("/", 1)[-1]
    return (
        "download it where there is a network: `pip install huggingface_hub`, "
        f"`hf download {repo_id} --local-dir {name}`, and give that folder"
    )
