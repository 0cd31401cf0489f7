"""The one extension point: how a back-end builds, packages and serves a pair."""

from __future__ import annotations

from typing import Protocol

from specdeploy.core.build import BuildPlan, EnginePaths, InputFile
from specdeploy.core.deployment import Deployment
from specdeploy.core.record import Record
from specdeploy.core.repository import Method, RepositoryPlan, Shape


class Capabilities(Record):
    """What a runtime can do; ``check`` turns the rest into findings."""

    methods: list[Method]
    shapes: list[Shape]
    precisions: list[str]
    max_draft_length: int
    needs_gpu: bool


class StepInputs(Record):
    """The source files of the pair, hashed by the caller (runtimes do no I/O)."""

    target: list[InputFile]
    draft: list[InputFile]
    tools: dict[str, str]


class Runtime(Protocol):
    """Describes work and never performs it: implementations are pure."""

    @property
    def name(self) -> str:
        """The word the user writes in ``runtime.name``."""

    @property
    def capabilities(self) -> Capabilities:
        """What this runtime can serve."""

    def plan_build(self, deployment: Deployment, *, inputs: StepInputs) -> BuildPlan:
        """Return the commands that turn checkpoints into served artifacts."""

    def plan_repository(self, deployment: Deployment, *, engines: EnginePaths) -> RepositoryPlan:
        """Return every file of the Triton repository."""
