"""Built artifacts: when one is stale and why, and how one differs from its record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from pydantic import Field

from specdeploy.core.build import (
    BuilderChange,
    BuildStep,
    EngineManifest,
    InputFile,
    Role,
    Settings,
    Stage,
    portable_argv,
)
from specdeploy.core.record import Document, Record
from specdeploy.core.repository import FileEntry, ModelRepository

MANIFEST: Final = "manifest.json"
REPOSITORY_RECORD: Final = "repository.json"
# Inside a workspace: every repository, and the link to the current one.
REPOSITORIES: Final = "repositories"
REPOSITORY_LINK: Final = "repository"


class Reason(Record):
    """One thing that makes an artifact stale; None stands for absent."""

    what: str = Field(description="settings.precision, input model.safetensors, tool torch, ...")
    was: str | None = None
    now: str | None = None

    @property
    def sentence(self) -> str:
        """The reason in words."""
        if self.was is None and self.now is None:
            return self.what
        return f"{self.what}: {self.was or 'absent'} -> {self.now or 'absent'}"


class StepReport(Record):
    """What a build does, or did, about one engine."""

    role: Role
    action: Literal["build", "reuse"]
    plan_digest: str
    output: str = Field(description="Absolute path of the artifact.")
    command: list[str] = Field(description="With every placeholder filled.")
    inputs: list[InputFile]
    reasons: list[Reason] = Field(default=[], description="Why it is stale; empty for reuse.")
    stage: Stage = "engine"
    log_name: str = Field(default="", description="Its log is logs/NNNN-<log_name>.log.")
    changes: list[BuilderChange] = Field(
        default=[], description="What the builder changes without being asked."
    )
    notes: list[str] = []
    expected: Settings = Field(
        default={}, description="Dotted place in the artifact's config.json to what it must say."
    )
    disk_bytes: int = Field(default=0, description="Room that the artifact takes, estimated.")

    @property
    def title(self) -> str:
        """What the step makes, in words."""
        return f"{self.role}'s checkpoint" if self.stage == "checkpoint" else self.role


class RepositoryReport(Record):
    """What a build does, or did, about the model repository."""

    action: Literal["render", "reuse"]
    path: str = Field(description="Absolute path, a link to the directory of the content.")
    entry_model: str
    models: list[str]
    files: list[str]
    reasons: list[Reason] = []
    notes: list[str] = Field(default=[], description="What to know of the files, in words.")
    lossy: list[str] = Field(
        default=[], description="Settings with which answers are not the target's own."
    )
    serve_command: list[str] = Field(
        default=[], description="Serves the same without Triton; empty where nothing does."
    )
    settings: dict[str, str] = Field(
        default={}, description="Text of the files that hold LLM API settings, by their path."
    )


class BuildReport(Document):
    """The result of ``specdeploy build``, and of its dry run."""

    workspace: str
    runtime: str
    performed: bool = Field(description="False for a dry run: nothing was written.")
    tools: dict[str, str]
    steps: list[StepReport]
    repository: RepositoryReport | None = None


class Difference(Record):
    """One way in which an artifact is not what its record says."""

    kind: Literal["record", "missing", "extra", "changed", "unreadable", "path-gone"]
    path: str = Field(description="Inside the artifact; absolute for path-gone.")
    message: str


class ArtifactCheck(Record):
    """One artifact against its record."""

    path: str
    kind: Literal["engine", "repository"]
    files: int = Field(description="Files that were hashed.")
    differences: list[Difference] = []


class VerifyReport(Document):
    """The result of ``specdeploy verify``."""

    path: str
    verdict: Literal["whole", "different"]
    artifacts: list[ArtifactCheck]


def directory_name(digest: str) -> str:
    """Return the part of a digest that names a directory; the record holds all of it."""
    return digest[:16]


def compare_files(
    recorded: Sequence[FileEntry], found: Sequence[FileEntry]
) -> Iterator[Difference]:
    """Yield what is missing, extra or changed, in the order of the names."""
    before = {entry.path: entry for entry in recorded}
    after = {entry.path: entry for entry in found}
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if new is None:
            yield Difference(kind="missing", path=path, message="recorded, but not there")
        elif old is None:
            yield Difference(kind="extra", path=path, message="there, but not recorded")
        elif old.size_bytes != new.size_bytes:
            sizes = f"{new.size_bytes} bytes instead of {old.size_bytes}"
            yield Difference(kind="changed", path=path, message=sizes)
        elif old.sha256 != new.sha256:
            yield Difference(kind="changed", path=path, message="same size, other content")


def explain_step(
    step: BuildStep, tools: Mapping[str, str], previous: EngineManifest | None
) -> list[Reason]:
    """Say what changed since ``previous``, the newest artifact of the same role."""
    if previous is None:
        return [Reason(what=f"no {step.title} was built in this workspace")]
    return [
        *_changes("settings.", _texts(previous.settings), _texts(step.settings)),
        *_changes("input ", _contents(previous.inputs), _contents(step.inputs)),
        *_changes("tool ", previous.tools, tools),
        *_argv_change(step, previous),
    ]


def _changes(prefix: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Reason]:
    for key in sorted(was.keys() | now.keys()):
        if was.get(key) != now.get(key):
            yield Reason(what=f"{prefix}{key}", was=was.get(key), now=now.get(key))


def _texts(settings: Settings) -> dict[str, str]:
    return {key: str(value) for key, value in settings.items()}


def _contents(inputs: Sequence[InputFile]) -> dict[str, str]:
    return {i.name: f"{i.size_bytes} bytes, {i.sha256[:12]}" for i in inputs}


def _argv_change(step: BuildStep, previous: EngineManifest) -> Iterator[Reason]:
    was = portable_argv(previous.argv, previous.inputs)
    now = portable_argv(step.argv, step.inputs)
    if was != now:
        yield Reason(what="command", was=" ".join(was), now=" ".join(now))


def explain_repository(record: ModelRepository, previous: ModelRepository) -> list[Reason]:
    """Say what changed since the repository that is current."""
    return [
        *_changes("", _facts(previous), _facts(record)),
        *_changes("file ", _files(previous), _files(record)),
    ]


def _facts(record: ModelRepository) -> dict[str, str]:
    plain = record.model_dump(mode="json", exclude={"plan_digest", "files"})
    return {key: str(value) for key, value in plain.items()}


def _files(record: ModelRepository) -> dict[str, str]:
    return {f.path: f"{f.size_bytes} bytes, {f.sha256[:12]}" for f in record.files}
