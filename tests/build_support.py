"""Doubles for builds: a runtime and a runner that need no model, on real directories."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from configs import a_model_spec
from typing_extensions import override

from specdeploy.adapters.artifact_files import LocalArtifacts
from specdeploy.adapters.hashing import FileHasher
from specdeploy.adapters.templates import StrictRenderer
from specdeploy.adapters.workspace import Workspace
from specdeploy.core.build import BuildPlan, BuildStep, EnginePaths, InputFile, Role
from specdeploy.core.deployment import Deployment, ModelUse, ResolvedLimits
from specdeploy.core.repository import FileToCopy, FileToRender, RepositoryPlan
from specdeploy.events import Reporter
from specdeploy.runtimes.base import Capabilities, StepInputs
from specdeploy.workflows.workbench import Workbench

TEMPLATE = """name: "leaf"
parameters: { key: "target" value: { string_value: "{{ target }}" } }
parameters: { key: "draft_length" value: { string_value: "{{ draft_length }}" } }
"""


class FakeRuntime:
    """One command per model, and a repository of one model."""

    name = "fake"
    capabilities = Capabilities(
        methods=["draft_target"],
        shapes=["engine"],
        precisions=["fp32"],
        max_draft_length=8,
        needs_gpu=False,
    )

    def plan_build(self, deployment: Deployment, *, inputs: StepInputs) -> BuildPlan:
        steps = [_step("target", deployment.target, inputs.target)]
        if deployment.draft:
            steps.append(_step("draft", deployment.draft, inputs.draft))
        return BuildPlan(runtime=self.name, steps=steps, tools=inputs.tools)

    def plan_repository(self, deployment: Deployment, *, engines: EnginePaths) -> RepositoryPlan:
        context = {"target": engines.target, "draft_length": deployment.draft_length}
        config = FileToRender(path="leaf/config.pbtxt", template="config.pbtxt.j2", context=context)
        return RepositoryPlan(
            shape="engine",
            method=deployment.method,
            models=["leaf"],
            entry_model="leaf",
            streaming=True,
            draft_length=deployment.draft_length,
            renders=[config],
            copies=[FileToCopy(path="leaf/1/model.py", source="model.py")],
            directories=["ensemble/1"],
            absolute_paths=[engines.target],
        )


def _step(role: Role, use: ModelUse, files: list[InputFile]) -> BuildStep:
    argv = ["{python}", "convert", "--from", use.path, "--to={output}"]
    return BuildStep(role=role, argv=argv, inputs=files, settings={"precision": use.precision})


class FakeRunner:
    """Writes what a converter would; ``trouble`` runs before the last file is written."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.trouble: Callable[[Path], None] = lambda _: None

    def run(
        self, argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        del environment
        self.commands.append(list(argv))
        log.write_text("ran\n")
        output = Path(argv[-1].partition("=")[2])
        source = Path(argv[3])
        (output / "config.json").write_text("{}")
        self.trouble(output)
        (output / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())


class FakeTools:
    """Versions as a test sets them."""

    def __init__(self) -> None:
        self.known = {"converter": "1"}

    def versions(self, runtime: str) -> dict[str, str]:
        del runtime
        return dict(self.known)


class RecordingReporter(Reporter):
    """Keeps what was told, one line each."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @override
    def note(self, message: str) -> None:
        self.lines.append(message)

    @override
    def artifact_reused(self, name: str, *, path: Path) -> None:
        self.lines.append(f"reused {name}")

    @override
    def artifact_built(self, name: str, *, path: Path) -> None:
        self.lines.append(f"built {name}")


class Setup:
    """A pair of sources, a workspace and doubles round them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner, self.tools = FakeRunner(), FakeTools()
        self.reporter = RecordingReporter()
        self.workspace = folder / "work space"
        for role in ("target", "draft"):
            source = folder / "sources" / role
            source.mkdir(parents=True)
            (source / "config.json").write_text(f'{{"role": "{role}"}}')
            (source / "model.safetensors").write_text(f"weights of {role}")
        templates = folder / "templates"
        templates.mkdir()
        (templates / "config.pbtxt.j2").write_text(TEMPLATE)
        (templates / "model.py").write_text("MODEL = True\n")

    def source(self, role: str) -> Path:
        return self.folder / "sources" / role

    def deployment(self, **changes: object) -> Deployment:
        deployment = Deployment(
            target=self.use("target"),
            draft=self.use("draft"),
            method="draft_target",
            runtime="fake",
            shape="engine",
            draft_length=4,
            limits=ResolvedLimits(max_batch_size=4, max_seq_len=256, max_num_tokens=1024),
        )
        return deployment.evolve(**changes)

    def use(self, role: str, **changes: object) -> ModelUse:
        use = ModelUse(path=str(self.source(role)), spec=a_model_spec(), precision="fp32")
        return use.evolve(**changes)

    def bench(self) -> Workbench:
        """Return a fresh workbench, as another run of the program has."""
        hasher = FileHasher(self.workspace / "hashes.json")
        return Workbench(
            store=Workspace(self.workspace, reporter=self.reporter),
            artifacts=LocalArtifacts(hasher),
            hasher=hasher,
            tools=self.tools,
            renderer=StrictRenderer(self.folder / "templates"),
            runner=self.runner,
            reporter=self.reporter,
            clock=lambda: 1_700_000_000.0,
            python=sys.executable,
            host="here",
        )
