"""TensorRT engines, served by Triton's ``tensorrtllm`` backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from specdeploy.core.build import BuildPlan, BuildStep, EnginePaths, InputFile, Settings
from specdeploy.core.deployment import Deployment, ModelUse
from specdeploy.core.engine_config import CONFIG_FILE, VERSION
from specdeploy.core.precision import PRECISIONS
from specdeploy.core.releases import Release
from specdeploy.core.repository import RepositoryPlan
from specdeploy.core.served import serve_model
from specdeploy.errors import ConfigError, InfeasiblePlanError
from specdeploy.runtimes.base import Capabilities, StepInputs
from specdeploy.runtimes.engine_commands import EnginePlan, filled, plan_engines
from specdeploy.runtimes.engine_facts import expected_config
from specdeploy.runtimes.engine_repository import (
    TOKENIZER,
    judges_by_logits,
    kv_pools,
    plan_trtllm_repository,
)

# More than any settings file can ask for; engines have no limit of their own.
MAX_DRAFT_LENGTH: Final = 256
_IN_ENGINE: Final = "pretrained_config."


@final
class EngineRuntime:
    """TensorRT-LLM up to 1.2: ``trtllm-build`` makes the engines."""

    @property
    def name(self) -> str:
        """The word the user writes in ``runtime.name``."""
        return "engine"

    @property
    def capabilities(self) -> Capabilities:
        """What this runtime can serve; a release may have less."""
        return Capabilities(
            methods=["draft_target", "ngram"],
            shapes=["engine"],
            precisions=list(PRECISIONS),
            max_draft_length=MAX_DRAFT_LENGTH,
            needs_gpu=True,
        )

    def plan_build(self, deployment: Deployment, *, inputs: StepInputs) -> BuildPlan:
        """Return a conversion and a build for each engine, the target's first.

        Raises:
            ConfigError: the release cannot build the deployment.
            InfeasiblePlanError: it takes more GPUs than there are, or does not fit one.
        """
        release = release_of(deployment)
        _require_gpus(deployment)
        _require_tokenizer(inputs.target)
        kv_pools(deployment)  # what does not fit is refused before an hour is spent
        tools = {**inputs.tools, "tensorrt_llm": release.decided.version}
        plans = plan_engines(
            deployment,
            release.profile,
            sm=deployment.gpu.sm if deployment.gpu else None,
            use_draft_logits=judges_by_logits(deployment),
        )
        steps: list[BuildStep] = []
        for plan in plans:
            files = inputs.target if plan.role == "target" else inputs.draft
            steps += _steps(plan, deployment, files, tools)
        source = deployment.trtllm_source
        places = {} if source is None else {"trtllm": source}
        return BuildPlan(runtime=self.name, steps=steps, tools=tools, places=places)

    def plan_repository(self, deployment: Deployment, *, engines: EnginePaths) -> RepositoryPlan:
        """Return every file of the Triton repository.

        Raises:
            ConfigError: the release cannot serve the deployment.
            InfeasiblePlanError: the pair does not fit the GPU that the settings name.
        """
        return plan_trtllm_repository(deployment, release_of(deployment).profile, engines=engines)


def release_of(deployment: Deployment) -> Release:
    """Return the release that a deployment is made for.

    Raises:
        ConfigError: nobody decided it.
    """
    if deployment.release is None:
        raise ConfigError("nothing tells the TensorRT-LLM version")
    return deployment.release


def _require_gpus(deployment: Deployment) -> None:
    if deployment.draft_length == 0:
        raise ConfigError(
            "draft_length is 0, and an engine built so refuses every draft token",
            hint="set draft_length to 1 or more",
        )
    uses = [("target", deployment.target)]
    uses += [("draft", deployment.draft)] if deployment.draft else []
    for role, use in uses:
        if deployment.gpu_count is not None and use.tp > deployment.gpu_count:
            raise InfeasiblePlanError(
                f"the {role} takes {use.tp} GPUs (tp), and hardware.count is "
                f"{deployment.gpu_count}",
                hint=f"lower {role}.tp, or name more GPUs",
            )


def _require_tokenizer(files: list[InputFile]) -> None:
    """Refuse now what would be found out when the engines are built and the rest is rendered."""
    if not any(file.name == TOKENIZER for file in files):
        raise ConfigError(
            f"the target's checkpoint has no {TOKENIZER}, which the repository's models read",
            hint="save the fast tokenizer beside the weights",
        )


def _steps(
    plan: EnginePlan, deployment: Deployment, files: list[InputFile], tools: dict[str, str]
) -> Iterator[BuildStep]:
    use = deployment.draft if plan.role == "draft" and deployment.draft else deployment.target
    sm = f"-sm{deployment.gpu.sm}" if deployment.gpu else ""
    cache = f"{{workspace}}/timing-{tools['tensorrt_llm']}{sm}.cache"
    convert, build = (command.argv for command in plan.commands)
    in_engine = expected_config(plan.expected)
    checkpoint = BuildStep(
        role=plan.role,
        stage="checkpoint",
        argv=filled(convert, {"checkpoint": "{output}"}),
        inputs=files,
        settings={"precision": use.precision, "kv_dtype": use.kv_dtype, "tp": use.tp},
        files=[CONFIG_FILE, *(f"rank{rank}.safetensors" for rank in range(use.tp))],
        expected=_in_checkpoint(in_engine),
        disk_bytes=_weight_bytes(use),
    )
    yield checkpoint
    yield BuildStep(
        role=plan.role,
        argv=filled(build, {"timing_cache": cache}),
        inputs=[],
        settings={
            "checkpoint": checkpoint.plan_digest(tools),
            "sm": deployment.gpu.sm if deployment.gpu else None,
        },
        files=[CONFIG_FILE, *(f"rank{rank}.engine" for rank in range(use.tp))],
        expected={VERSION: tools["tensorrt_llm"], **in_engine},
        changes=plan.changes,
        notes=[*release_of(deployment).decided.notes, *plan.notes],
        disk_bytes=_weight_bytes(use),
    )


def _in_checkpoint(expected: Settings) -> Settings:
    """Return what the checkpoint's config.json says of what the engine's repeats."""
    return {
        place.removeprefix(_IN_ENGINE): value
        for place, value in expected.items()
        if place.startswith(_IN_ENGINE)
    }


def _weight_bytes(use: ModelUse) -> int:
    served = serve_model(use.spec, precision=use.precision, kv_dtype=use.kv_dtype, tp=use.tp)
    return served.weight_bytes * use.tp
