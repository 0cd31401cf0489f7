"""What workflows need from the outside world; adapters implement it, tests fake it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from specdeploy.core.build import EngineManifest, InputFile, Role
from specdeploy.core.models import ModelSpec
from specdeploy.core.record import Document
from specdeploy.core.repository import FileEntry, ModelRepository, RepositoryPlan
from specdeploy.core.settings import ConfigFile
from specdeploy.core.tokenizers import TokenizerSpec
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


class TokenizerReader(Protocol):
    """Reads a tokenizer without running anything in its directory."""

    def read_tokenizer(self, path: Path) -> TokenizerSpec | None:
        """Return the directory's tokenizer; None when it has no tokenizer files at all.

        Raises:
            CheckpointError: a file is broken, or the tokenizer is in another format.
        """


class WeightsIdentifier(Protocol):
    """Tells whether two directories hold the same weights."""

    def identify_weights(self, path: Path) -> str | None:
        """Return a digest that equal weights share; None when there are no weight files.

        Raises:
            CheckpointError: a weight file cannot be read.
        """


class Renderer(Protocol):
    """Turns a repository plan into files."""

    def render(
        self, plan: RepositoryPlan, *, must_exist: bool = True
    ) -> Iterator[tuple[str, bytes]]:
        """Yield (path inside the repository, content), each checked.

        Args:
            plan: What to write.
            must_exist: Refuse absolute paths that do not exist.

        Raises:
            ArtifactError: names the file, and the line where there is one.
        """


class Hasher(Protocol):
    """Knows the content of files."""

    def checkpoint_inputs(self, directory: Path) -> list[InputFile]:
        """Hash what a converter reads from a checkpoint.

        Raises:
            CheckpointError: a file is missing or unreadable.
        """

    def save(self) -> None:
        """Keep what was learnt for the next run; call it with the workspace locked."""


class ToolVersions(Protocol):
    """Knows what is installed."""

    def versions(self, runtime: str) -> dict[str, str]:
        """Return name to version of all that decides what a runtime's build steps write.

        Raises:
            MissingToolError: something is not installed; says how to install it.
        """


class Artifacts(Protocol):
    """Reads built artifacts."""

    def find(self, path: Path) -> list[Path]:
        """Return the artifact directories at or below a path.

        Raises:
            ArtifactError: there are none.
        """

    def is_repository(self, directory: Path) -> bool:
        """Tell a repository from an engine."""

    def read_manifest(self, directory: Path) -> EngineManifest:
        """Return an engine's record.

        Raises:
            ArtifactError: it is missing, garbage or of a newer schema.
        """

    def read_repository(self, directory: Path) -> ModelRepository:
        """Return a repository's record.

        Raises:
            ArtifactError: it is missing, garbage or of a newer schema.
        """

    def entries(self, directory: Path, *, without: str) -> list[FileEntry]:
        """Hash every file of an artifact but its record.

        Raises:
            ArtifactError: a file cannot be read.
        """

    def read_config(self, directory: Path) -> Mapping[str, object]:
        """Return the content of an engine's config.json.

        Raises:
            ArtifactError: it is missing, or no JSON object.
        """

    def exists(self, path: str) -> bool:
        """Tell whether there is something at an absolute path."""


class Store(Protocol):
    """A workspace: directories that exist whole or not at all, and one writer."""

    @property
    def root(self) -> Path:
        """The workspace's directory."""

    @property
    def repository(self) -> Path:
        """Where the current repository is found."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the workspace for one writer.

        Raises:
            ConfigError: it cannot be written, or another writer did not finish in time.
        """

    def engine_directory(self, role: Role, plan_digest: str) -> Path:
        """Return where the artifact of a step belongs."""

    def repository_directory(self, digest: str) -> Path:
        """Return where a rendered repository belongs."""

    def free_bytes(self) -> int:
        """Return the room that is left on the workspace's disk."""

    def current_repository(self) -> Path | None:
        """Return the directory that ``repository`` stands for now, if any."""

    def served_repository(self) -> Path | None:
        """Return what the workspace's recorded server serves, if there is one.

        Raises:
            ArtifactError: the record cannot be read.
        """

    def remove_all_but(self, keep: Collection[Path]) -> list[Path]:
        """Remove artifacts that are not in ``keep`` and that no process uses; return them."""

    def manifests(self, role: Role) -> list[EngineManifest]:
        """Return the readable manifests of a role, newest first."""

    def next_log(self, name: str) -> Path:
        """Return the next numbered log file."""

    def read_log(self, log: Path) -> str:
        """Return the end of a log; empty when it cannot be read."""

    def staging(self, destination: Path) -> AbstractContextManager[Path]:
        """Give a sibling directory that is moved to ``destination`` on success."""

    def write_file(self, path: Path, content: bytes) -> None:
        """Write one file of a staging directory, its folder made as needed."""

    def make_directory(self, path: Path) -> None:
        """Make one directory of a staging directory."""

    def seal(self, directory: Path, name: str, document: Document) -> None:
        """Write the record that declares a directory whole, after all else is on the disk."""

    def publish_repository(self, directory: Path) -> None:
        """Make ``directory`` the current repository, in one step."""
