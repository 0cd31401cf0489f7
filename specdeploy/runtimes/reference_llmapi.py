"""The llmapi shape on the reference runtime: one Python model, draft and target inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specdeploy.core.build import EnginePaths
from specdeploy.core.deployment import Deployment
from specdeploy.core.models import PRECISION_OF_DTYPE
from specdeploy.core.repository import FileToCopy, FileToRender, RepositoryPlan
from specdeploy.runtimes.reference_limits import MAX_DRAFT_LENGTH

MODEL: Final = "tensorrt_llm"

_DTYPES: Final = {precision: dtype for dtype, precision in PRECISION_OF_DTYPE.items()}

_COPIES: Final[Mapping[str, tuple[str, ...]]] = {
    "llmapi/tensorrt_llm/1": (
        "model.py",
        "active_requests.py",
        "llmapi_request.py",
        "llmapi_response.py",
    ),
    "reference/llm": (
        "reference_llm.py",
        "drafters.py",
        "generation.py",
        "llm_config.py",
        "llm_types.py",
        "text_codec.py",
    ),
    "reference/lib": (
        "causal_lm.py",
        "lean_llama.py",
        "row_attention.py",
        "sampling.py",
        "session_pool.py",
        "transformers_lm.py",
    ),
    "shared": ("metrics.py", "prompt_lookup.py", "stopping.py"),
}


def plan_llmapi_repository(deployment: Deployment, *, engines: EnginePaths) -> RepositoryPlan:
    """Return the files of the repository; method none is the same model without a draft."""
    return RepositoryPlan(
        shape="llmapi",
        method=deployment.method,
        models=[MODEL],
        entry_model=MODEL,
        streaming=True,
        draft_length=deployment.draft_length,
        renders=[_config(), _model_yaml(deployment, engines)],
        copies=[
            FileToCopy(path=f"{MODEL}/1/{name}", source=f"{folder}/{name}")
            for folder, names in _COPIES.items()
            for name in names
        ],
        absolute_paths=[path for path in (engines.target, engines.draft) if path],
        environment=_environment(deployment.serving.threads),
    )


def _config() -> FileToRender:
    return FileToRender(
        path=f"{MODEL}/config.pbtxt",
        template="llmapi/tensorrt_llm/config.pbtxt.j2",
        context={"model_name": MODEL, "llm_module": "reference_llm"},
    )


def _model_yaml(deployment: Deployment, engines: EnginePaths) -> FileToRender:
    return FileToRender(
        path=f"{MODEL}/1/model.yaml",
        template="llmapi/tensorrt_llm/1/model.yaml.j2",
        context={
            "llm_arguments": _llm_arguments(deployment, engines),
            "triton_config": {
                "max_batch_size": 0,
                "decoupled": True,
                "max_draft_length": MAX_DRAFT_LENGTH,
                "sampling_defaults": deployment.sampling.model_dump(mode="json"),
            },
        },
    )


def _llm_arguments(deployment: Deployment, engines: EnginePaths) -> dict[str, object]:
    limits = deployment.limits
    arguments: dict[str, object] = {
        "model": engines.target,
        "dtype": _DTYPES[deployment.target.precision],
        "max_batch_size": limits.max_batch_size,
        "max_num_tokens": limits.max_num_tokens,
        "max_seq_len": limits.max_seq_len,
        "num_threads": deployment.serving.threads,
        "trust_remote_code": deployment.trust_remote_code,
    }
    speculative = _speculative_config(deployment, engines)
    return {**arguments, "speculative_config": speculative} if speculative else arguments


def _speculative_config(deployment: Deployment, engines: EnginePaths) -> dict[str, object]:
    """Return TensorRT-LLM's ``speculative_config``; empty when nothing is drafted."""
    if deployment.method == "none" or deployment.draft_length == 0:
        return {}
    if deployment.method == "ngram":
        return {
            "decoding_type": "NGram",
            "max_draft_len": deployment.draft_length,
            "max_matching_ngram_size": deployment.serving.max_ngram_size,
        }
    return {
        "decoding_type": "Draft_Target",
        "max_draft_len": deployment.draft_length,
        "speculative_model": engines.draft,
    }


def _environment(threads: int) -> dict[str, str]:
    """Keep every numeric library to the model's thread count; more would fight over cores."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**dict.fromkeys(names, str(threads)), "TOKENIZERS_PARALLELISM": "false"}
