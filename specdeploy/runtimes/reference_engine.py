"""The reference runtime in the engine shape: TensorRT-LLM's models, served from Python.

With a method the entry is ``speculative`` over two leaf models; without one it is the
``ensemble``, whose leaf makes whole answers. The models' Python is copied beside
``model.py``, where Triton's Python back-end finds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from specdeploy.core.build import EnginePaths
from specdeploy.core.contracts import ModelContract, TensorSpec, with_extensions
from specdeploy.core.deployment import Deployment
from specdeploy.core.repository import FileToCopy, FileToRender, RepositoryPlan
from specdeploy.runtimes.reference_limits import MAX_DRAFT_LENGTH

TARGET, DRAFT = "tensorrt_llm", "tensorrt_llm_draft"

# Model -> the files copied into its version folder.
_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "preprocessing": (
        "engine/preprocessing/1/model.py",
        "engine/preprocessing/1/word_lists.py",
        "engine/common/fields.py",
    ),
    "postprocessing": ("engine/postprocessing/1/model.py",),
    "speculative": (
        "engine/speculative/1/model.py",
        "engine/speculative/1/leaves.py",
        "engine/speculative/1/speculative_request.py",
        "engine/speculative/1/rounds.py",
        "engine/common/fields.py",
        "shared/metrics.py",
        "shared/prompt_lookup.py",
        "shared/stopping.py",
    ),
    TARGET: (
        "reference/tensorrt_llm/1/model.py",
        "reference/tensorrt_llm/1/leaf.py",
        "reference/tensorrt_llm/1/leaf_request.py",
        "reference/tensorrt_llm/1/streaming.py",
        "reference/lib/causal_lm.py",
        "reference/lib/lean_llama.py",
        "reference/lib/row_attention.py",
        "reference/lib/sampling.py",
        "reference/lib/session_pool.py",
        "reference/lib/transformers_lm.py",
        "engine/common/fields.py",
        "shared/stopping.py",
    ),
}

# What the reference leaf never answers, so that an ensemble must not promise it either, and
# the inputs that need such an output or a GPU back-end.
_ENSEMBLE_OUTPUTS: Final = {"text_output", "num_output_tokens"}

# Leaf tensor -> the ensemble's; preprocessing does not see them.
_ENSEMBLE_TO_LEAF: Final[dict[str, str]] = {
    "exclude_input_in_output": "exclude_input_in_output",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "temperature": "temperature",
    "len_penalty": "length_penalty",
    "repetition_penalty": "repetition_penalty",
    "min_length": "min_length",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "random_seed": "random_seed",
    "return_log_probs": "return_log_probs",
    "return_context_logits": "return_context_logits",
    "return_generation_logits": "return_generation_logits",
    "beam_width": "beam_width",
    "num_return_sequences": "num_return_sequences",
    "streaming": "stream",
}

_ENSEMBLE_INPUTS: Final = {
    "text_input",
    "max_tokens",
    "stop_words",
    "bad_words",
    "end_id",
    "pad_id",
    *_ENSEMBLE_TO_LEAF.values(),
}


def plan_engine_repository(deployment: Deployment, *, engines: EnginePaths) -> RepositoryPlan:
    """Return every file of the repository."""
    renders = list(_renders(deployment, engines))
    models = [item.path.split("/")[0] for item in renders]
    tokenizer = _tokenizer_file(engines)
    return RepositoryPlan(
        shape="engine",
        method=deployment.method,
        models=models,
        entry_model=_entry_model(deployment),
        streaming=True,
        draft_length=deployment.draft_length,
        renders=renders,
        copies=[copy for model in models for copy in copies_of(model)],
        directories=["ensemble/1"] if "ensemble" in models else [],
        absolute_paths=[
            tokenizer,
            *filter(None, (engines.target, _draft_engine(deployment, engines))),
        ],
        environment=_environment(deployment),
    )


def _entry_model(deployment: Deployment) -> str:
    return "ensemble" if deployment.method == "none" else "speculative"


def _renders(deployment: Deployment, engines: EnginePaths) -> Iterator[FileToRender]:
    yield preprocessing_file(deployment, _tokenizer_file(engines))
    yield _leaf(deployment, TARGET, engines.target, lean=False)
    draft = _draft_engine(deployment, engines)
    if draft:
        yield _leaf(deployment, DRAFT, draft, lean=True)
    yield postprocessing_file(deployment, _tokenizer_file(engines))
    if deployment.method == "none":
        yield _ensemble(deployment)
    else:
        yield speculative_file(
            deployment,
            _tokenizer_file(engines),
            max_draft_length=MAX_DRAFT_LENGTH,
            use_draft_logits=_equal_logits(deployment),
        )


def _draft_engine(deployment: Deployment, engines: EnginePaths) -> str | None:
    return engines.draft if deployment.method == "draft_target" else None


def preprocessing_file(deployment: Deployment, tokenizer_file: str) -> FileToRender:
    """Return the configuration of the model that encodes prompts."""
    return model_file(
        "preprocessing",
        template="engine/preprocessing",
        contract=_without(
            "preprocessing", {"DECODER_QUERY", "EMBEDDING_BIAS_WORDS", "EMBEDDING_BIAS_WEIGHTS"}
        ),
        context={
            "max_batch_size": deployment.limits.max_batch_size,
            "tokenizer_file": tokenizer_file,
            "add_special_tokens": True,
            "end_ids": _end_ids(deployment),
        },
    )


def postprocessing_file(deployment: Deployment, tokenizer_file: str) -> FileToRender:
    """Return the configuration of the model that decodes answers."""
    return model_file(
        "postprocessing",
        template="engine/postprocessing",
        contract=with_extensions("postprocessing"),
        context={
            "max_batch_size": deployment.limits.max_batch_size,
            "tokenizer_file": tokenizer_file,
            "skip_special_tokens": True,
        },
    )


def _leaf(deployment: Deployment, name: str, engine: str, *, lean: bool) -> FileToRender:
    streamed = deployment.method == "none"
    use = deployment.draft if name == DRAFT and deployment.draft else deployment.target
    return model_file(
        name,
        template="reference/tensorrt_llm",
        contract=with_extensions("tensorrt_llm"),
        context={
            "name": name,
            "decoupled": streamed,
            "max_batch_size": deployment.limits.max_batch_size,
            "engine_dir": engine,
            "dtype": use.precision,
            "lean": lean,
            "threads": deployment.serving.threads,
            "max_seq_len": deployment.limits.max_seq_len,
            "tokenizer_file": f"{engine}/tokenizer.json" if streamed else "",
            "exclude_input_in_output": True,
            "trust_remote_code": deployment.trust_remote_code,
            "sampling": deployment.sampling.model_dump(),
        },
    )


def speculative_file(
    deployment: Deployment,
    tokenizer_file: str,
    *,
    max_draft_length: int,
    use_draft_logits: bool,
) -> FileToRender:
    """Return the configuration of the model that drafts and verifies."""
    return model_file(
        "speculative",
        template="engine/speculative",
        contract=with_extensions("tensorrt_llm_bls"),
        context={
            "max_batch_size": deployment.limits.max_batch_size,
            "target_model": TARGET,
            "draft_model": DRAFT if deployment.method == "draft_target" else "",
            "preprocessing_model": "preprocessing",
            "method": deployment.method,
            "draft_length": deployment.draft_length,
            "max_draft_length": max_draft_length,
            "use_draft_logits": use_draft_logits,
            "max_ngram_size": deployment.serving.max_ngram_size,
            "max_seq_len": deployment.limits.max_seq_len,
            "vocab_size": deployment.target.spec.vocab_size,
            "end_ids": _end_ids(deployment),
            "tokenizer_file": tokenizer_file,
            "sampling": deployment.sampling.model_dump(),
        },
    )


def _ensemble(deployment: Deployment) -> FileToRender:
    contract = with_extensions("ensemble")
    return model_file(
        "ensemble",
        template="engine/ensemble",
        contract=contract.only(inputs=_ENSEMBLE_INPUTS, outputs=_ENSEMBLE_OUTPUTS),
        context={
            "max_batch_size": deployment.limits.max_batch_size,
            "leaf_inputs": _ENSEMBLE_TO_LEAF,
        },
    )


def model_file(
    name: str, *, template: str, contract: ModelContract, context: dict[str, object]
) -> FileToRender:
    """Return a model's configuration, its tensors as the contract has them."""
    tensors = {"inputs": _plain(contract.inputs), "outputs": _plain(contract.outputs)}
    return FileToRender(
        path=f"{name}/config.pbtxt",
        template=f"{template}/config.pbtxt.j2",
        context={**context, **tensors},
    )


def _plain(tensors: list[TensorSpec]) -> list[dict[str, object]]:
    return [tensor.model_dump() for tensor in tensors]


def _without(model: str, names: set[str]) -> ModelContract:
    contract = with_extensions(model)
    return contract.evolve(inputs=[t for t in contract.inputs if t.name not in names])


def copies_of(model: str) -> Iterator[FileToCopy]:
    """Yield the Python files of a model."""
    for source in _SOURCES.get(TARGET if model == DRAFT else model, ()):
        yield FileToCopy(path=f"{model}/1/{source.rsplit('/', 1)[-1]}", source=source)


def _tokenizer_file(engines: EnginePaths) -> str:
    return f"{engines.target}/tokenizer.json"


def _equal_logits(deployment: Deployment) -> bool:
    """Tell whether the target can judge by the draft's scores, which it takes in its own width."""
    draft = deployment.draft
    return draft is None or draft.spec.vocab_size == deployment.target.spec.vocab_size


def _end_ids(deployment: Deployment) -> str:
    return json.dumps(deployment.target.spec.special_ids.ending)


def _environment(deployment: Deployment) -> dict[str, str]:
    threads = str(deployment.serving.threads)
    return {"OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
