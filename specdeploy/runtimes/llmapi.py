"""TensorRT-LLM's LLM API, served by Triton's Python backend, or by ``trtllm-serve``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from specdeploy.core.build import BuildPlan, EnginePaths
from specdeploy.core.deployment import Deployment, SamplingDefaults
from specdeploy.core.precision import PRECISIONS
from specdeploy.core.repository import FileToCopy, FileToRender, RepositoryPlan
from specdeploy.errors import ConfigError
from specdeploy.runtimes.base import Capabilities, StepInputs
from specdeploy.runtimes.llmapi_config import LlmPlan, plan_llm
from specdeploy.runtimes.llmapi_question import LlmQuestion, Speculation, question

MODEL: Final = "tensorrt_llm"
SERVE_FILE: Final = "trtllm-serve.yaml"
# More than any settings file can ask for; the LLM API has no limit of its own.
MAX_DRAFT_LENGTH: Final = 256

_TEMPLATE: Final = "llmapi/llm_settings.yaml.j2"
_COPIES: Final = (
    "llmapi/tensorrt_llm/1/model.py",
    "llmapi/tensorrt_llm/1/active_requests.py",
    "llmapi/tensorrt_llm/1/llmapi_request.py",
    "llmapi/tensorrt_llm/1/llmapi_response.py",
    "shared/metrics.py",
)


@final
class LlmApiRuntime:
    """TensorRT-LLM from 1.0: no build step, one model that reads the checkpoints."""

    @property
    def name(self) -> str:
        """The word the user writes in ``runtime.name``."""
        return "llmapi"

    @property
    def capabilities(self) -> Capabilities:
        """What this runtime can serve; a release may have less."""
        return Capabilities(
            methods=["none", "draft_target", "ngram"],
            shapes=["llmapi"],
            precisions=list(PRECISIONS),
            max_draft_length=MAX_DRAFT_LENGTH,
            needs_gpu=True,
        )

    def plan_build(self, deployment: Deployment, *, inputs: StepInputs) -> BuildPlan:
        """Return a plan without steps: the checkpoints are served as they are."""
        del deployment
        return BuildPlan(runtime=self.name, steps=[], tools=inputs.tools)

    def plan_repository(self, deployment: Deployment, *, engines: EnginePaths) -> RepositoryPlan:
        """Return every file of the Triton repository, and how ``trtllm-serve`` serves the same.

        Raises:
            ConfigError: the release cannot serve the deployment.
        """
        asked = ask(deployment, engines)
        plan = plan_llm(asked)
        return RepositoryPlan(
            shape="llmapi",
            method=deployment.method,
            models=[MODEL],
            entry_model=MODEL,
            streaming=True,
            draft_length=deployment.draft_length,
            renders=[_config(), *settings_files(asked, plan)],
            copies=[
                FileToCopy(path=f"{MODEL}/1/{source.rpartition('/')[2]}", source=source)
                for source in _COPIES
            ],
            absolute_paths=[path for path in (engines.target, engines.draft) if path],
            notes=plan.notes,
            lossy=plan.lossy,
            serve_command=_serve_command(deployment, engines.target),
        )


def ask(deployment: Deployment, engines: EnginePaths) -> LlmQuestion:
    """Return what a deployment asks of its release.

    Raises:
        ConfigError: no release was decided, or it has no LLM API or no such method.
    """
    if deployment.release is None:
        raise ConfigError(
            "nothing tells the TensorRT-LLM version",
            hint="set runtime.trtllm_version, such as 1.2.1",
        )
    if deployment.method == "none" or deployment.draft_length == 0:
        return question(deployment, deployment.release, engines.target)
    speculation = Speculation(deployment.method, deployment.draft_length, engines.draft)
    return question(deployment, deployment.release, engines.target, speculation)


def settings_files(asked: LlmQuestion, plan: LlmPlan) -> list[FileToRender]:
    """Return ``model.yaml`` and the file of ``trtllm-serve``; lossy settings stand on top."""
    return [_model_yaml(asked, plan), _serve_yaml(asked, plan)]


def _config() -> FileToRender:
    return FileToRender(
        path=f"{MODEL}/config.pbtxt",
        template="llmapi/tensorrt_llm/config.pbtxt.j2",
        context={"model_name": MODEL, "llm_module": "tensorrt_llm"},
    )


def _model_yaml(asked: LlmQuestion, plan: LlmPlan) -> FileToRender:
    triton = {
        "max_batch_size": 0,
        "decoupled": True,
        "sampling_defaults": _sampling_defaults(asked.deployment.sampling),
    }
    return FileToRender(
        path=f"{MODEL}/1/model.yaml",
        template=_TEMPLATE,
        context={
            "remarks": list(_remarks(asked, plan, reader="LLM(**settings), beside triton_config")),
            "settings": {**plan.arguments, "triton_config": triton},
        },
    )


def _serve_yaml(asked: LlmQuestion, plan: LlmPlan) -> FileToRender:
    """Return the same settings for ``trtllm-serve``, which takes the model on its own."""
    settings = {key: value for key, value in plan.arguments.items() if key != "model"}
    return FileToRender(
        path=SERVE_FILE,
        template=_TEMPLATE,
        context={
            "remarks": list(_remarks(asked, plan, reader="trtllm-serve")),
            "settings": settings,
        },
    )


def _remarks(asked: LlmQuestion, plan: LlmPlan, *, reader: str) -> Iterator[str]:
    yield f"TensorRT-LLM {asked.version}: read by {reader}."
    for setting in plan.lossy:
        yield f"LOSSY: with {setting} the answers are not the target's own."


def _sampling_defaults(sampling: SamplingDefaults) -> dict[str, object]:
    """Return what differs from the library's own defaults, which are greedy.

    Acceptance is in the answer of a request only when its metrics are asked for.
    """
    given = sampling.model_dump(mode="json")
    neutral = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0}
    changed = {name: value for name, value in given.items() if value != neutral[name]}
    return {"return_perf_metrics": True, **changed}


def _serve_command(deployment: Deployment, target: str) -> list[str]:
    """Return the command; the option's name is one that every release takes."""
    command = ["trtllm-serve", target, "--extra_llm_api_options", f"{{repository}}/{SERVE_FILE}"]
    port = deployment.serving.http_port
    return [*command, "--port", str(port)] if port else command
