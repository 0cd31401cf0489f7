"""The reference runtime: real models on the CPU, behind the tensors of the other two."""

from __future__ import annotations

from typing import Final, final

from specdeploy.core.build import BuildPlan, BuildStep, EnginePaths, InputFile, Role
from specdeploy.core.deployment import Deployment, ModelUse
from specdeploy.core.models import PRECISION_OF_DTYPE
from specdeploy.core.precision import find_precision, weight_bytes
from specdeploy.core.repository import RepositoryPlan
from specdeploy.runtimes.base import Capabilities, StepInputs
from specdeploy.runtimes.reference_engine import plan_engine_repository
from specdeploy.runtimes.reference_limits import MAX_DRAFT_LENGTH
from specdeploy.runtimes.reference_llmapi import plan_llmapi_repository

_CONVERTER: Final = "specdeploy.adapters.reference_convert"


@final
class ReferenceRuntime:
    """Hugging Face transformers on PyTorch; either shape, no GPU."""

    @property
    def name(self) -> str:
        """The word the user writes in ``runtime.name``."""
        return "reference"

    @property
    def capabilities(self) -> Capabilities:
        """What this runtime can serve."""
        return Capabilities(
            methods=["none", "draft_target", "ngram"],
            shapes=["engine", "llmapi"],
            precisions=list(PRECISION_OF_DTYPE.values()),
            max_draft_length=MAX_DRAFT_LENGTH,
            needs_gpu=False,
        )

    def plan_build(self, deployment: Deployment, *, inputs: StepInputs) -> BuildPlan:
        """Return one conversion per model of the pair."""
        steps = [_step("target", deployment.target, inputs.target)]
        if deployment.method == "draft_target" and deployment.draft:
            steps.append(_step("draft", deployment.draft, inputs.draft))
        return BuildPlan(runtime=self.name, steps=steps, tools=inputs.tools)

    def plan_repository(self, deployment: Deployment, *, engines: EnginePaths) -> RepositoryPlan:
        """Return every file of the Triton repository."""
        if deployment.shape == "engine":
            return plan_engine_repository(deployment, engines=engines)
        return plan_llmapi_repository(deployment, engines=engines)


def _step(role: Role, use: ModelUse, files: list[InputFile]) -> BuildStep:
    argv = ["{python}", "-m", _CONVERTER, "--checkpoint-dir", use.path]
    argv += ["--output-dir", "{output}", "--dtype", use.precision]
    return BuildStep(
        role=role,
        argv=argv,
        inputs=files,
        settings={"dtype": use.precision},
        disk_bytes=weight_bytes(use.spec, find_precision(use.precision)),
    )
