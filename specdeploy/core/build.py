"""What a build will do, as a value: steps with argument lists, inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field

from specdeploy.core.record import Document, Record
from specdeploy.core.repository import FileEntry

Role = Literal["target", "draft"]
ROLES: Final[tuple[Role, ...]] = ("target", "draft")
Stage = Literal["checkpoint", "engine"]
Scalar = str | int | float | bool | None
Settings = dict[str, Scalar]


class InputFile(Record):
    """A source file of a step, identified by content."""

    path: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.path.rpartition("/")[2]


class BuilderChange(Record):
    """A size that ends up different from what the deployment says."""

    setting: str
    asked: int
    becomes: int
    reason: str


class BuildStep(Record):
    """One external command and the artifact directory that it fills.

    ``argv`` names by placeholder what depends on where it runs: ``{python}`` is the running
    interpreter, ``{output}`` the directory to fill, ``{checkpoint}`` what the step before it
    filled for the same role, ``{workspace}`` the workspace; a plan's ``places`` are more.
    """

    role: Role
    stage: Stage = "engine"
    argv: list[str]
    inputs: list[InputFile] = Field(description="Paths are absolute.")
    settings: Settings = Field(
        default={}, description="What decided the command, for people and for --explain."
    )
    files: list[str] = Field(default=[], description="Names that the output must have.")
    expected: Settings = Field(
        default={}, description="Dotted place in the output's config.json to what it must say."
    )
    changes: list[BuilderChange] = Field(
        default=[], description="What the builder changes without being asked."
    )
    notes: list[str] = []
    disk_bytes: int = Field(default=0, description="Room that the output takes, estimated.")

    @property
    def log_name(self) -> str:
        """Name of the command's log, less its number and extension."""
        return f"{'convert' if self.stage == 'checkpoint' else 'build'}-{self.role}"

    @property
    def title(self) -> str:
        """What the step makes, in words."""
        return f"{self.role}'s checkpoint" if self.stage == "checkpoint" else self.role

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


def filled_argv(argv: list[str], places: Mapping[str, str]) -> list[str]:
    """Replace placeholders: whole words, what follows ``--flag=``, or the start of a path.

    Args:
        argv: A step's command.
        places: Placeholder, without its braces, to what it stands for.
    """
    values = {f"{{{name}}}": place for name, place in places.items()}
    return [_replaced(_path_filled(word, values), values) for word in argv]


def _path_filled(word: str, values: dict[str, str]) -> str:
    start, slash, rest = word.partition("/")
    return f"{values[start]}/{rest}" if slash and start in values else word


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
    places: dict[str, str] = Field(
        default={}, description="Placeholder to its path on this machine; in no digest."
    )


class Annotations(Record):
    """Facts about one run that are no part of the artifact's identity."""

    built_at: str | None = None
    host: str | None = None
    seconds: float | None = None


class EngineManifest(Document):
    """``manifest.json`` of one engine directory, written last."""

    role: Role
    stage: Stage = "engine"
    plan_digest: str
    settings: Settings
    expected: Settings = {}
    argv: list[str]
    inputs: list[InputFile]
    tools: dict[str, str]
    outputs: list[FileEntry]
    annotations: Annotations = Annotations()


class EnginePaths(Record):
    """Where the built artifacts of a pair lie (absolute paths)."""

    target: str
    draft: str | None = None
