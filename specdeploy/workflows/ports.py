"""What workflows need from the outside world; adapters implement it, tests fake it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from specdeploy.core.models import ModelSpec
from specdeploy.core.repository import RepositoryPlan
from specdeploy.core.settings import ConfigFile
from specdeploy.core.tuning import TuningFile


class CommandRunner(Protocol):
    """Runs an external command to its end."""

    def run(
        self, argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Run ``argv``, write its output to ``log``.

        Raises:
            MissingToolError: the program is not there.
            CommandFailedError: it ended with a non-zero status.
        """


class ConfigFiles(Protocol):
    """Reads and writes the files that settings come from."""

    def read_config(self, path: Path, *, name: str) -> ConfigFile:
        """Return a ``specdeploy.yaml``'s values with their lines; errors call it ``name``.

        Raises:
            ConfigError: unreadable, not YAML, or not a mapping of settings.
        """

    def write_config(self, path: Path, text: str, *, overwrite: bool) -> None:
        """Write a settings file whole or not at all.

        Raises:
            ConfigError: it is there already and may not be replaced, or cannot be written.
        """

    def read_tuning(self, path: Path) -> TuningFile:
        """Return what a ``tuning.json`` chose.

        Raises:
            ConfigError: unreadable, or not a tuning file of a version we know.
        """


class HubResolver(Protocol):
    """Finds the files of a Hugging Face Hub id."""

    def resolve(self, repo_id: str) -> Path:
        """Return the local directory of ``owner/name``.

        Raises:
            ConfigError: not cached and not reachable; the hint says how to download it.
        """


class CheckpointReader(Protocol):
    """Reads facts from a checkpoint directory without running anything in it."""

    def read_model(self, path: Path) -> ModelSpec:
        """Return the model's facts.

        Raises:
            CheckpointError: a file is missing, broken or of an unknown family.
        """


class Renderer(Protocol):
    """Turns a repository plan into files."""

    def render(self, plan: RepositoryPlan) -> Iterator[tuple[str, bytes]]:
        """Yield (path inside the repository, content), each checked."""


class Store(Protocol):
    """Directories that exist whole or not at all."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the workspace for one writer."""

    def staging(self, destination: Path) -> AbstractContextManager[Path]:
        """Give a sibling directory that is moved to ``destination`` on success."""
