"""The Triton repository of TensorRT engines: our ``speculative`` over the C++ backend's models.

Preprocessing, postprocessing and ``speculative`` are those of the reference runtime. The leaf
models' parameters are the variables of the release's own templates: each one is written, or
left out for a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from specdeploy.core.build import EnginePaths
from specdeploy.core.contracts import UPSTREAM, ModelContract, TensorSpec
from specdeploy.core.deployment import Deployment, ModelUse
from specdeploy.core.hardware import GpuSpec
from specdeploy.core.memory import GpuMemory, MemoryRequest, plan_memory
from specdeploy.core.memory_records import LoadOrder, MemoryPlan, PoolPlan
from specdeploy.core.release_profile import ReleaseProfile, TemplateKeys
from specdeploy.core.repository import FileToRender, RepositoryPlan
from specdeploy.core.served import ServedModel, ServedPair, serve_model
from specdeploy.errors import ConfigError, InfeasiblePlanError
from specdeploy.runtimes.engine_facts import TOKENS_PER_BLOCK
from specdeploy.runtimes.reference_engine import (
    DRAFT,
    TARGET,
    copies_of,
    model_file,
    postprocessing_file,
    preprocessing_file,
    speculative_file,
)

TOKENIZER: Final = "tokenizer.json"
# Upstream's templates name it, and a server that spawns its workers needs it.
_WORKER: Final = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"
# Template variable -> the parameter that the backend reads, where they differ.
_PARAMETERS: Final[Mapping[str, str]] = {
    "engine_dir": "gpt_model_path",
    "batching_strategy": "gpt_model_type",
    "encoder_engine_dir": "encoder_model_path",
}
# Variables of fields, not of parameters, by the template's own name for them.
_FIELDS: Final = frozenset(
    {
        "triton_backend",
        "triton_max_batch_size",
        "decoupled_mode",
        "max_queue_delay_microseconds",
        "max_queue_size",
        "encoder_input_features_data_type",
        "logits_datatype",
    }
)
ABSENT: Final[Mapping[str, str]] = {
    "cross_kv_cache_fraction": "an error on decoder-only models",
    "cuda_graph_cache_size": "CUDA graphs are off",
    "decoding_mode": "external drafts choose it themselves",
    "eagle_choices": "EAGLE only",
    "encoder_engine_dir": "encoder-decoder models only",
    "guided_decoding_backend": "not served",
    "iter_stats_max_iterations": "the executor's own number",
    "lookahead_ngram_size": "lookahead only",
    "lookahead_verification_set_size": "lookahead only",
    "lookahead_window_size": "lookahead only",
    "lora_cache_gpu_memory_fraction": "no adapters are served",
    "lora_cache_host_memory_bytes": "no adapters are served",
    "lora_cache_max_adapter_size": "no adapters are served",
    "lora_cache_optimal_adapter_size": "no adapters are served",
    "lora_prefetch_dir": "no adapters are served",
    "max_attention_window_size": "the model's own",
    "medusa_choices": "Medusa only",
    "participant_ids": "pre-spawned workers only",
    "request_stats_max_iterations": "the executor's own number",
    "sink_token_length": "the model's own",
    "tokenizer_dir": "guided decoding only",
    "xgrammar_tokenizer_info_path": "guided decoding only",
}
"""Variables that are left out, which means their default, and why."""

_ALWAYS: Final[Mapping[str, str]] = {
    "batching_strategy": "inflight_fused_batching",
    "batch_scheduler_policy": "guaranteed_no_evict",
    "cancellation_check_period_ms": "100",
    "cuda_graph_mode": "false",
    "enable_chunked_context": "false",
    "enable_context_fmha_fp32_acc": "false",
    "enable_kv_cache_reuse": "true",
    "exclude_input_in_output": "true",
    "gpu_weights_percent": "1.0",
    "kv_cache_host_memory_bytes": "0",
    "kv_cache_onboard_blocks": "true",
    "max_beam_width": "1",
    "multi_block_mode": "true",
    "normalize_log_probs": "true",
    "num_nodes": "1",
    "speculative_decoding_fast_logits": "false",
    "stats_check_period_ms": "100",
}
_FEATURES: Final = "encoder_input_features"
# Two models that share a GPU, whatever their order of loading: the caps on tokens decide then.
_SHARED_FRACTION: Final = 0.5
_ALONE_FRACTION: Final = 0.9


@dataclass(frozen=True, slots=True)
class KvPool:
    """A cap in tokens, and a share of what is free when the model has loaded."""

    tokens: int
    fraction: float


def plan_trtllm_repository(
    deployment: Deployment, profile: ReleaseProfile, *, engines: EnginePaths
) -> RepositoryPlan:
    """Return every file of the repository.

    Raises:
        ConfigError: a template of the release has a variable that nobody knows here.
        InfeasiblePlanError: the pair does not fit the GPU that the settings name.
    """
    pools = kv_pools(deployment)
    tokenizer = f"{deployment.target.path}/{TOKENIZER}"
    renders = list(_renders(deployment, profile, engines, tokenizer, pools))
    models = [item.path.split("/")[0] for item in renders]
    draft = engines.draft if deployment.method == "draft_target" else None
    return RepositoryPlan(
        shape="engine",
        method=deployment.method,
        models=models,
        entry_model="speculative",
        streaming=True,
        draft_length=deployment.draft_length,
        renders=renders,
        copies=[c for model in models if model not in {TARGET, DRAFT} for c in copies_of(model)],
        directories=[f"{model}/1" for model in models if model in {TARGET, DRAFT}],
        absolute_paths=[tokenizer, *filter(None, (engines.target, draft))],
        server_paths=[_WORKER],
        environment={"TOKENIZERS_PARALLELISM": "false"},
    )


def judges_by_logits(deployment: Deployment) -> bool:
    """Tell whether drafted tokens are judged by scores, which both engines then give out.

    Greedy answers are the same either way, and cheaper by tokens.
    """
    draft = deployment.draft
    if draft is None or deployment.sampling.temperature == 0:
        return False
    return draft.spec.vocab_size == deployment.target.spec.vocab_size


def leaf_contract(profile: ReleaseProfile) -> ModelContract:
    """Return the tensors of ``tensorrt_llm`` in a release."""
    whole = UPSTREAM["tensorrt_llm"]
    return ModelContract(
        inputs=[_as_in(profile, t) for t in whole.inputs if t.name not in profile.missing_tensors],
        outputs=[t for t in whole.outputs if t.name not in profile.missing_tensors],
    )


def _as_in(profile: ReleaseProfile, tensor: TensorSpec) -> TensorSpec:
    """Fill what upstream's templates leave open; logits are FP32, as they are built."""
    if tensor.name == _FEATURES:
        return tensor.evolve(data_type="TYPE_FP16")
    # Where there are no features to take its place, a prompt is needed.
    return tensor.evolve(optional=False) if _is_needed(profile, tensor) else tensor


def _is_needed(profile: ReleaseProfile, tensor: TensorSpec) -> bool:
    return tensor.name == "input_ids" and _FEATURES in profile.missing_tensors


def _renders(
    deployment: Deployment,
    profile: ReleaseProfile,
    engines: EnginePaths,
    tokenizer: str,
    pools: Mapping[str, KvPool],
) -> Iterator[FileToRender]:
    yield preprocessing_file(deployment, tokenizer)
    yield _leaf(TARGET, engines.target, deployment, profile, pools[TARGET])
    if deployment.method == "draft_target" and engines.draft:
        yield _leaf(DRAFT, engines.draft, deployment, profile, pools[DRAFT])
    yield postprocessing_file(deployment, tokenizer)
    yield speculative_file(
        deployment,
        tokenizer,
        max_draft_length=deployment.draft_length,
        use_draft_logits=judges_by_logits(deployment),
    )


def _leaf(
    name: str,
    engine: str,
    deployment: Deployment,
    profile: ReleaseProfile,
    pool: KvPool,
) -> FileToRender:
    draft = deployment.draft if name == DRAFT else None
    values = {
        **_ALWAYS,
        "engine_dir": engine,
        "gpu_device_ids": ",".join(map(str, range((draft or deployment.target).tp))),
        "max_tokens_in_paged_kv_cache": str(pool.tokens),
        "kv_cache_free_gpu_mem_fraction": f"{pool.fraction:g}",
    }
    return model_file(
        name,
        template="engine/tensorrt_llm",
        contract=leaf_contract(profile),
        context={
            "name": name,
            "max_batch_size": deployment.limits.max_batch_size,
            "worker": _WORKER,
            "parameters": _parameters(profile.template_keys["tensorrt_llm"], values),
        },
    )


def _parameters(keys: TemplateKeys, values: Mapping[str, str]) -> dict[str, str]:
    """Return the release's parameters in the order of its list.

    Raises:
        ConfigError: a variable is neither filled nor left out on purpose.
    """
    wanted = [name for name in (*keys.typed, *keys.text) if name not in _FIELDS]
    if unknown := [name for name in wanted if name not in values and name not in ABSENT]:
        raise ConfigError(f"nothing fills {', '.join(unknown)} of this release's tensorrt_llm")
    return {_PARAMETERS.get(name, name): values[name] for name in wanted if name in values}


def kv_pools(deployment: Deployment) -> dict[str, KvPool]:
    """Return the KV pool of each leaf: computed for a GPU that is named, else of whole requests.

    Only a cap on tokens gives two models on one GPU the same pools in any order of loading. Both
    cache the same text, so they have the same cap; the share is the largest that either order
    asks for.

    Raises:
        InfeasiblePlanError: the pair does not fit the GPU that the settings name.
    """
    if deployment.gpu is None:
        fraction = _ALONE_FRACTION if deployment.draft is None else _SHARED_FRACTION
        pool = KvPool(_request_tokens(deployment) * deployment.limits.max_batch_size, fraction)
        return {TARGET: pool, DRAFT: pool}
    plans = [_memory(deployment, deployment.gpu, order) for order in get_args(LoadOrder)]
    pools = {TARGET: _largest([plan.target for plan in plans])}
    drafts = [plan.draft for plan in plans if plan.draft is not None]
    return {**pools, DRAFT: _largest(drafts)} if drafts else pools


def _largest(pools: Sequence[PoolPlan]) -> KvPool:
    return KvPool(
        tokens=min(pool.max_tokens_in_paged_kv_cache for pool in pools),
        fraction=max(pool.kv_cache_free_gpu_mem_fraction for pool in pools),
    )


def _request_tokens(deployment: Deployment) -> int:
    """Return the tokens of one whole request, drafted ones and the rest of its block included."""
    tokens = deployment.limits.max_seq_len + deployment.draft_length
    return -(-tokens // TOKENS_PER_BLOCK) * TOKENS_PER_BLOCK


def _memory(deployment: Deployment, gpu: GpuSpec, order: LoadOrder) -> MemoryPlan:
    limits, draft = deployment.limits, deployment.draft
    pair = ServedPair(
        target=_served(deployment.target),
        draft=_served(draft) if draft else None,
        method=deployment.method,
        through_bls=True,
    )
    plan = plan_memory(
        MemoryRequest(
            pair=pair,
            gpu=GpuMemory.of(gpu),
            max_seq_len=limits.max_seq_len,
            max_batch_size=limits.max_batch_size,
            max_num_tokens=limits.max_num_tokens,
            draft_length=deployment.draft_length,
            tokens_per_block=TOKENS_PER_BLOCK,
            load_order=order,
        )
    )
    if not plan.fits:
        ways = "; ".join(suggestion.message for suggestion in plan.suggestions)
        raise InfeasiblePlanError(
            f"the pair does not fit {gpu.name}: {plan.binding.message}",
            hint=ways or None,
        )
    return plan


def _served(use: ModelUse) -> ServedModel:
    return serve_model(use.spec, precision=use.precision, kv_dtype=use.kv_dtype, tp=use.tp)
