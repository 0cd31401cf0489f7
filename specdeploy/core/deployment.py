"""A deployment with nothing left to decide: the effective values of ``specdeploy.yaml``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.models import ModelSpec
from specdeploy.core.record import Record
from specdeploy.core.releases import Release
from specdeploy.core.repository import Method, Shape
from specdeploy.core.schedule import ScheduleTier


class ModelUse(Record):
    """One model of the pair and how it is served."""

    path: str = Field(description="Absolute path of the checkpoint directory.")
    spec: ModelSpec
    precision: str = Field(description="As served: fp32, bf16 or fp16 on the reference runtime.")
    kv_dtype: str = "auto"
    tp: int = 1


class ResolvedLimits(Record):
    """Sizes the server is planned for, in requests and tokens."""

    max_batch_size: int = Field(description="Requests held at once; one KV slot each.")
    max_seq_len: int = Field(description="Usable prompt + output tokens of one request.")
    max_num_tokens: int = Field(description="Tokens of one forward pass over all requests.")


class SamplingDefaults(Record):
    """Used when a request does not say; temperature 0 is greedy."""

    model_config = ConfigDict(allow_inf_nan=False)

    temperature: float = Field(default=0.0, ge=0.0)
    top_k: int = Field(default=0, ge=0, description="0 keeps every token.")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, description="1 keeps every token.")
    seed: int = Field(default=0, ge=0)


class ServingSettings(Record):
    """How the server runs. Port 0 means: pick a free one when the server starts."""

    model_config = ConfigDict(allow_inf_nan=False)

    grpc_port: int = Field(default=0, ge=0, le=65535)
    http_port: int = Field(default=0, ge=0, le=65535)
    metrics_port: int = Field(default=0, ge=0, le=65535)
    threads: int = Field(default=1, ge=1, description="CPU threads per model process.")
    startup_timeout_s: float = Field(default=180.0, gt=0)
    max_ngram_size: int = Field(default=3, ge=1, description="Longest suffix of prompt lookup.")


class LlmApiSettings(Record):
    """What only TensorRT-LLM's LLM API has; ``auto`` takes what the release does best."""

    model_config = ConfigDict(allow_inf_nan=False)

    pp: int = Field(
        default=1, ge=1, description="Pipeline parallelism; nothing can be drafted above 1."
    )
    overlap_scheduler: bool | Literal["auto"] = Field(
        default="auto", description="Prepare a step on the host while the one before it computes."
    )
    block_reuse: bool = Field(default=True, description="Keep KV blocks of shared prefixes.")
    kv_fraction: Annotated[float, Field(gt=0, lt=1)] | Literal["auto"] = Field(
        default="auto", description="Share of the memory left for the KV cache."
    )
    schedule: bool = Field(
        default=True, description="Follow the draft-length schedule of tuning.json."
    )
    relaxed_topk: int | None = Field(
        default=None, ge=1, description="Accept a draft among the target's best (mtp; lossy)."
    )
    relaxed_delta: float | None = Field(
        default=None, ge=0, le=1, description="Most that its probability may be less (mtp; lossy)."
    )
    posterior_threshold: float | None = Field(
        default=None, gt=0, lt=1, description="Accept by a likelihood (eagle3; lossy)."
    )


class TunedServing(Record):
    """What tuning decided beside the numbers that have a setting of their own."""

    tiers: list[ScheduleTier] = Field(default=[], description="Draft lengths by batch size.")
    kv_fraction: float | None = Field(
        default=None, description="Of the memory left, for the KV cache of target and draft."
    )


class Deployment(Record):
    """Target, draft and every setting, resolved. Input to every runtime's plans."""

    target: ModelUse
    draft: ModelUse | None = None
    method: Method
    runtime: str
    shape: Shape
    draft_length: int = Field(ge=0, description="Tokens proposed per step; 0 for method none.")
    limits: ResolvedLimits
    sampling: SamplingDefaults = SamplingDefaults()
    serving: ServingSettings = ServingSettings()
    allow_lossy: bool = False
    trust_remote_code: bool = False
    tuning_digest: str | None = None
    release: Release | None = Field(
        default=None, description="TensorRT-LLM's; None on the reference runtime."
    )
    gpu: GpuSpec | None = Field(default=None, description="None: not named, and not checked.")
    gpu_count: int | None = Field(default=None, description="GPUs that may be used.")
    trtllm_source: str | None = Field(
        default=None, description="Folder of TensorRT-LLM's sources; None: not known."
    )
    llmapi: LlmApiSettings = LlmApiSettings()
    tuned: TunedServing = TunedServing()
