"""What a build will do, as a value: steps with argument lists, inputs and outputs."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from specdeploy.core.record import Document, Record
from specdeploy.core.repository import FileEntry

Role = Literal["target", "draft"]
ROLES: Final[tuple[Role, ...]] = ("target", "draft")
Settings = dict[str, str | int | float | bool | None]


class InputFile(Record):
    """A source file of a step, identified by content."""

    path: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.path.rpartition("/")[2]


class BuildStep(Record):
    """One external command and the artifact directory that it fills.

    ``argv`` names two things by placeholder, so that the plan does not depend on where it
    runs: ``{python}`` is the running interpreter, ``{output}`` the directory to fill.
    """

    role: Role
    argv: list[str]
    inputs: list[InputFile] = Field(description="Paths are absolute.")
    settings: Settings = Field(
        default={}, description="What decided the command, for people and for --explain."
    )

    def plan_digest(self, tools: dict[str, str]) -> str:
        """Digest of all that decides the output; where the inputs lie does not."""
        identity = BuildIdentity(
            role=self.role,
            argv=portable_argv(self.argv, self.inputs),
            settings=self.settings,
            inputs=sorted((i.name, i.size_bytes, i.sha256) for i in self.inputs),
            tools=tools,
        )
        return identity.digest()


class BuildIdentity(Record):
    """The part of a step that its digest is made of."""

    role: Role
    argv: list[str]
    settings: Settings
    inputs: list[tuple[str, int, str]]
    tools: dict[str, str]


def portable_argv(argv: list[str], inputs: list[InputFile]) -> list[str]:
    """Write the folder of the inputs as ``{inputs}``: moved sources give the same artifact."""
    folders = {i.path.rpartition("/")[0] for i in inputs}
    values = dict.fromkeys(folders, "{inputs}") if len(folders) == 1 else {}
    return [_replaced(word, values) for word in argv]


def filled_argv(argv: list[str], *, python: str, output: str) -> list[str]:
    """Replace the placeholders; they are whole words, or what follows ``--flag=``."""
    values = {"{python}": python, "{output}": output}
    return [_replaced(word, values) for word in argv]


def _replaced(word: str, values: dict[str, str]) -> str:
    if word in values:
        return values[word]
    flag, equals, value = word.partition("=")
    return f"{flag}={values[value]}" if equals and value in values else word


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
    settings: Settings
    argv: list[str]
    inputs: list[InputFile]
    tools: dict[str, str]
    outputs: list[FileEntry]
    annotations: Annotations = Annotations()


class EnginePaths(Record):
    """Where the built artifacts of a pair lie (absolute paths)."""

    target: str
    draft: str | None = None
