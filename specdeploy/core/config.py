"""``specdeploy.yaml``: the one file the user writes, as it is written.

Nothing is decided here: ``auto`` stays ``auto`` and paths stay as typed. A deployment with
nothing left to decide is ``specdeploy.core.deployment.Deployment``.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field

from specdeploy.core.deployment import LlmApiSettings, SamplingDefaults, ServingSettings
from specdeploy.core.precision import AUTO, precision_word
from specdeploy.core.record import Document, Record
from specdeploy.core.repository import Method, Shape

CONFIG_NAME: Final = "specdeploy.yaml"
WORKSPACE_NAME: Final = ".specdeploy"

Auto = Literal["auto"]
Positive = Annotated[int, Field(ge=1)]
RuntimeName = Literal["engine", "llmapi", "reference"]
# The words of core/precision.py and core/kv_cache.py; a type cannot be made from their tables.
Precision = Literal[
    "auto",
    "fp32",
    "bf16",
    "fp16",
    "fp8",
    "int8_wo",
    "int8_sq",
    "int4_wo",
    "int4_awq",
    "w4a8",
    "nvfp4",
]
KvDtype = Literal["auto", "fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4", "nvfp4"]
Objective = Literal["latency", "throughput", "cost"]

METHODS: Final[tuple[Method, ...]] = get_args(Method)
LATER_METHODS: Final = (
    "dflash",
    "dspark",
    "eagle",
    "eagle2",
    "eagle3",
    "lookahead",
    "medusa",
    "mtp",
    "pard",
    "redrafter",
    "sa",
)

# Keys that are read and validated, and that nothing in this release acts on.
NOT_USED_YET: Final = (
    "target.gpus",
    "draft.gpus",
    "runtime.executor",
)


def _precision_of_any_spelling(value: object) -> object:
    return precision_word(value) if isinstance(value, str) else value


def _method_of_this_release(value: object) -> object:
    if isinstance(value, str) and value.lower().replace("-", "_") in LATER_METHODS:
        raise ValueError(f"{value} is not in this release, which has {', '.join(METHODS)}")
    return value


class Section(Record):
    """A mapping inside the file. Infinities are refused: no setting means one."""

    model_config = ConfigDict(allow_inf_nan=False)


class ModelSection(Section):
    """One model of the pair."""

    path: str = Field(
        min_length=1,
        description="Checkpoint directory, relative to this file, or a Hub id (owner/name).",
    )
    precision: Annotated[Precision, BeforeValidator(_precision_of_any_spelling)] = Field(
        default=AUTO, description="As served; auto keeps the precision of the stored weights."
    )
    kv_dtype: KvDtype = Field(default=AUTO, description="Type of the KV cache.")
    tp: int = Field(default=1, ge=1, description="Tensor parallelism: GPUs that share the model.")
    gpus: list[Annotated[int, Field(ge=0)]] | None = Field(
        default=None, description="GPU indices the model runs on."
    )


class RuntimeSection(Section):
    """What serves the pair."""

    name: RuntimeName = Field(
        default="reference",
        description="engine and llmapi are TensorRT-LLM; reference needs no GPU.",
    )
    shape: Shape | None = Field(
        default=None, description="Repository that the reference runtime imitates."
    )
    trtllm_version: str | None = Field(default=None, description='For example "1.2.0".')
    trtllm_source: str | None = Field(
        default=None,
        description="Folder of TensorRT-LLM's sources, whose examples convert checkpoints.",
    )
    container: str | None = Field(default=None, description="Image that has the tools.")
    executor: str | None = Field(default=None, description="How ranks are started.")


class LimitsSection(Section):
    """Sizes the server is planned for."""

    max_batch_size: Annotated[int, Field(ge=1)] | Auto = Field(
        default=AUTO, description="Requests held at once."
    )
    max_num_tokens: Annotated[int, Field(ge=1)] | Auto = Field(
        default=AUTO, description="Tokens of one forward pass over all requests."
    )
    max_seq_len: Annotated[int, Field(ge=1)] | Auto = Field(
        default=AUTO, description="Usable prompt + output tokens of one request."
    )


class HardwareSection(Section):
    """The GPUs to plan for."""

    gpu: str | None = Field(default=None, description="Name of the GPU, such as h100-sxm.")
    count: int | None = Field(default=None, ge=1, description="GPUs that may be used.")


class CategoryMix(Section):
    """Relative weight of each kind of request; all zero means that no mix was given."""

    code: float = Field(default=0.0, ge=0)
    summarization: float = Field(default=0.0, ge=0)
    conversation: float = Field(default=0.0, ge=0)
    extraction: float = Field(default=0.0, ge=0)
    long_answer: float = Field(default=0.0, ge=0)


class SloSection(Section):
    """Limits a request must keep to count as served well."""

    ttft_ms: float | None = Field(default=None, gt=0, description="Time to first token.")
    tpot_ms: float | None = Field(default=None, gt=0, description="Time per output token.")
    e2e_ms: float | None = Field(default=None, gt=0, description="Time to the last token.")


class WorkloadSection(Section):
    """What the requests look like."""

    input_len: Positive | list[Positive] | None = Field(
        default=None, description="Prompt tokens; several lengths are a sample of the requests."
    )
    output_len: Positive | list[Positive] | None = Field(
        default=None, description="Answer tokens; several lengths are a sample of the requests."
    )
    concurrency: Positive | list[Positive] | None = Field(
        default=None, description="Requests in flight, one number or several to compare."
    )
    request_rate: float | None = Field(
        default=None, gt=0, description="Requests per second, instead of a concurrency."
    )
    categories: CategoryMix = CategoryMix()
    slo: SloSection = SloSection()


class Config(Document):
    """A pair of models, and how to serve it with speculative decoding."""

    model_config = ConfigDict(allow_inf_nan=False, title="specdeploy.yaml")

    target: ModelSection = Field(description="The model whose answers are wanted.")
    draft: ModelSection | None = Field(
        default=None, description="The small model that proposes tokens (draft_target)."
    )
    method: Annotated[Method, BeforeValidator(_method_of_this_release)] = Field(
        default="draft_target",
        description="draft_target, ngram (prompt lookup), or none (no speculation).",
    )
    runtime: RuntimeSection = RuntimeSection()
    draft_length: Annotated[int, Field(ge=0, le=256)] | Auto = Field(
        default=AUTO, description="Tokens proposed per step; 0 switches speculation off."
    )
    limits: LimitsSection = LimitsSection()
    hardware: HardwareSection = HardwareSection()
    sampling: SamplingDefaults = SamplingDefaults()
    workload: WorkloadSection = WorkloadSection()
    objective: Objective = "latency"
    price_per_gpu_hour: float | None = Field(default=None, gt=0)
    allow_lossy: bool = Field(
        default=False, description="Accept methods that change the target's distribution."
    )
    trust_remote_code: bool = Field(
        default=False, description="Let Python code inside the checkpoints run."
    )
    serving: ServingSettings = ServingSettings()
    llmapi: LlmApiSettings = LlmApiSettings()
    workspace: str = Field(
        default=WORKSPACE_NAME, min_length=1, description="Folder for everything that is made."
    )
