"""What workflows need from the outside world; adapters implement it, tests fake it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from specdeploy.core.build import EngineManifest, InputFile, Role
from specdeploy.core.models import ModelSpec
from specdeploy.core.record import Document
from specdeploy.core.repository import FileEntry, ModelRepository, RepositoryPlan
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

    def manifests(self, role: Role) -> list[EngineManifest]:
        """Return the readable manifests of a role, newest first."""

    def next_log(self, name: str) -> Path:
        """Return the next numbered log file."""

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


class RunningServer(Protocol):
    """A server process that was started here."""

    @property
    def record(self) -> ServerRecord:
        """What it is, in state ``starting``."""

    def exit_status(self) -> int | None:
        """Return the status it ended with (negative: a signal), or None while it lives."""

    def lost_models(self) -> list[str]:
        """Return the models whose process has ended since the first call."""

    def new_log_lines(self) -> list[str]:
        """Return the complete lines that were written since the last call."""

    def log_lines(self) -> list[str]:
        """Return every line so far."""

    def stop(self, *, hurry: Callable[[], bool]) -> bool:
        """End it in order, else (or once ``hurry`` says so) by force; leave nothing behind.

        Returns True when nothing had to be killed.
        """


class ServerLauncher(Protocol):
    """Starts servers, and deals with those that earlier commands started."""

    def launch(self, spec: LaunchSpec) -> RunningServer:
        """Start a server and return at once, long before it is ready.

        Raises:
            MissingToolError: there is no tritonserver for this Python.
            ServerError: a port that was asked for is in use.
            ConfigError: a file that it needs cannot be written.
        """

    def is_running(self, record: ServerRecord) -> bool:
        """Tell whether the recorded process lives; one that reuses its pid does not count."""

    def stop_recorded(self, record: ServerRecord, *, patience_s: float) -> bool:
        """End a recorded server and remove what it left; return whether it was running."""


class ServedModels(Protocol):
    """A blocking client of one server."""

    def health(self) -> ServerHealth:
        """Return what the server says about itself.

        Raises:
            ServerError: it does not answer.
        """

    def generate(self, prompt: str, options: GenerationOptions) -> GenerationResult:
        """Return one whole answer.

        Raises:
            ServerError: no answer, an error, or too late.
        """

    def close(self) -> None:
        """End the connection."""


class ConnectToServer(Protocol):
    """Connects to a server's gRPC address."""

    def __call__(self, url: str, *, timeout_s: float, model: str) -> ServedModels:
        """Return a client whose every call ends within ``timeout_s``."""


class ServerRecords(Protocol):
    """``run/server.json`` of one workspace."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold the right to start a server here.

        Raises:
            ServerError: another command holds it.
        """

    def read(self) -> ServerRecord | None:
        """Return the record, or None when there is none.

        Raises:
            ArtifactError: it is there and cannot be read.
        """

    def write(self, record: ServerRecord) -> None:
        """Replace the record in one step."""

    def remove(self) -> None:
        """Remove the record, if any."""


class RepositoryReader(Protocol):
    """Reads rendered repositories."""

    def read(self, directory: Path) -> ModelRepository:
        """Return the record of a repository.

        Raises:
            ArtifactError: there is none that we can read.
        """

    def files(self, directory: Path) -> list[FileEntry]:
        """Return its files as they are now."""


class StopSwitch(Protocol):
    """Tells whether somebody wants the work to end."""

    @property
    def pressed(self) -> bool:
        """True once it was asked for."""

    @property
    def pressed_again(self) -> bool:
        """True once it was asked for a second time: at once, then."""

    def breaking(self) -> AbstractContextManager[None]:
        """Let a press end what runs inside by an exception.

        Raises:
            KeyboardInterrupt: pressed before or meanwhile.
        """


class Clock(Protocol):
    """Time, so that tests need not wait for it."""

    def now(self) -> float:
        """Return seconds on a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
