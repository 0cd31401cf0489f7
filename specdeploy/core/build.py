"""What a build will do, as a value: steps with argument lists, inputs and outputs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specdeploy.core.record import Document, Record
from specdeploy.core.repository import FileEntry

Role = Literal["target", "draft"]


class InputFile(Record):
    """A source file of a step, identified by content."""

    path: str
    size_bytes: int
    sha256: str


class BuildStep(Record):
    """One external command and the artifact directory that it fills.

    ``argv`` writes the output directory as the word ``{output}``, which is replaced by the
    staging directory when the step runs, so that the plan does not depend on where it runs.
    """

    role: Role
    argv: list[str]
    inputs: list[InputFile]
    settings: dict[str, str | int | float | bool | None] = Field(
        default={}, description="What decided the command, for people and for --explain."
    )

    @property
    def identity(self) -> str:
        """Digest of what decides the output; where the inputs lie does not."""
        inputs = sorted((i.path.rsplit("/", 1)[-1], i.size_bytes, i.sha256) for i in self.inputs)
        from_record = BuildIdentity(role=self.role, settings=self.settings, inputs=inputs)
        return from_record.digest()


class BuildIdentity(Record):
    """The part of a step that its digest is made of."""

    role: Role
    settings: dict[str, str | int | float | bool | None]
    inputs: list[tuple[str, int, str]]


class BuildPlan(Document):
    """Steps of one build; an empty list is a valid plan."""

    runtime: str
    steps: list[BuildStep]
    tools: dict[str, str] = Field(default={}, description="Program or library to version.")


class Annotations(Record):
    """Facts about one run that are no part of the artifact's identity."""

    built_at: str | None = None
    host: str | None = None
    seconds: float | None = None


class EngineManifest(Document):
    """``manifest.json`` of one engine directory, written last."""

    role: Role
    plan_digest: str
    settings: dict[str, str | int | float | bool | None]
    argv: list[str]
    inputs: list[InputFile]
    tools: dict[str, str]
    outputs: list[FileEntry]
    annotations: Annotations = Annotations()


class EnginePaths(Record):
    """Where the built artifacts of a pair lie (absolute paths)."""

    target: str
    draft: str | None = None
