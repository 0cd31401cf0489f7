"""The keyword arguments of ``tensorrt_llm.LLM`` for one deployment and one release.

They are the body of Triton's ``model.yaml`` and of a ``trtllm-serve`` file alike. Only keys that
the release has are written: the classes refuse every other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import Field

from specdeploy.core.models import PRECISION_OF_DTYPE
from specdeploy.core.record import Record
from specdeploy.core.release_profile import LlmSection
from specdeploy.runtimes.llmapi_question import LlmQuestion
from specdeploy.runtimes.llmapi_rules import (
    least_tokens,
    require_servable,
    reuses_blocks,
    rule_notes,
    runs_overlapped,
)
from specdeploy.runtimes.llmapi_speculation import (
    lossy_settings,
    speculation_notes,
    speculative_config,
    usable_tiers,
)

# The engine's own default of every release that states one.
DEFAULT_KV_FRACTION: Final = 0.9

_DTYPES: Final = {precision: dtype for dtype, precision in PRECISION_OF_DTYPE.items()}
# Batches that get a graph, as TensorRT-LLM chooses them when it pads: up to 128, then doubled.
_SMALL_GRAPHS: Final = (1, 2, 4)
_GRAPH_STEP: Final = 8
_STEPPED_UP_TO: Final = 128

Arguments = dict[str, object]


class LlmPlan(Record):
    """What ``LLM`` is given, and what to know of it."""

    arguments: Arguments = Field(description="In the order in which they are written.")
    lossy: list[str] = Field(description="Settings with which answers are not the target's own.")
    notes: list[str] = Field(description="What is not certain, and what a rule changed.")


def plan_llm(asked: LlmQuestion) -> LlmPlan:
    """Return the arguments, every one of them a key of the release.

    Raises:
        ConfigError: the release cannot serve this; says why, and what to change.
    """
    require_servable(asked)
    sections = asked.profile.llm_sections
    arguments: Arguments = {
        **_model(asked),
        **_limits(asked),
        "kv_cache_config": _known(_kv_cache(asked), sections["kv_cache_config"]),
        "cuda_graph_config": {"batch_sizes": graph_sizes(asked), "enable_padding": True},
        "return_perf_metrics": True,
    }
    notes = [*asked.release.decided.notes, *rule_notes(asked)]
    if asked.speculation is not None:
        arguments["speculative_config"] = speculative_config(asked, asked.speculation)
        notes += speculation_notes(asked, asked.speculation)
    kept = _known(arguments, sections["llm_args"])
    return LlmPlan(
        arguments=kept, lossy=lossy_settings(asked), notes=[*notes, *_uncertain(asked, kept)]
    )


def graph_sizes(asked: LlmQuestion) -> list[int]:
    """Return the batch sizes that get a CUDA graph.

    The largest batch is one of them, and so is the last batch of every draft length: a batch is
    padded up to the next size, which must not belong to another length.
    """
    largest = asked.deployment.limits.max_batch_size
    stepped = range(_GRAPH_STEP, min(largest, _STEPPED_UP_TO) + 1, _GRAPH_STEP)
    sizes = {largest, *(size for size in _SMALL_GRAPHS if size <= largest), *stepped}
    size = 2 * _STEPPED_UP_TO
    while size < largest:
        sizes.add(size)
        size *= 2
    if asked.speculation is not None:
        tiers = usable_tiers(asked, asked.speculation)
        sizes |= {tier.from_batch for tier in tiers} | {tier.to_batch for tier in tiers}
    return sorted(sizes)


def _model(asked: LlmQuestion) -> Arguments:
    target = asked.deployment.target
    return {
        "model": asked.target,
        "dtype": "auto" if target.spec.quantization else _DTYPES[target.precision],
        "trust_remote_code": asked.deployment.trust_remote_code,
        "tensor_parallel_size": target.tp,
        "pipeline_parallel_size": asked.deployment.llmapi.pp,
    }


def _limits(asked: LlmQuestion) -> Arguments:
    limits = asked.deployment.limits
    whole_prompt = least_tokens(asked) + limits.max_seq_len
    return {
        "max_batch_size": limits.max_batch_size,
        "max_num_tokens": limits.max_num_tokens,
        "max_seq_len": limits.max_seq_len,
        "enable_chunked_prefill": limits.max_num_tokens < whole_prompt,
        "disable_overlap_scheduler": not runs_overlapped(asked),
    }


def _kv_cache(asked: LlmQuestion) -> Arguments:
    settings, tuned = asked.deployment.llmapi.kv_fraction, asked.deployment.tuned.kv_fraction
    fraction = settings if isinstance(settings, float) else tuned or DEFAULT_KV_FRACTION
    kv_dtype = asked.deployment.target.kv_dtype
    return {
        "enable_block_reuse": reuses_blocks(asked),
        "free_gpu_memory_fraction": fraction,
        "dtype": kv_dtype if kv_dtype in {"fp8", "nvfp4"} else "auto",
    }


def _known(wanted: Mapping[str, object], section: LlmSection) -> Arguments:
    """Drop what the release would refuse; a section that was read in part may have more."""
    return {
        key: value for key, value in wanted.items() if key in section.fields or not section.complete
    }


def _uncertain(asked: LlmQuestion, arguments: Mapping[str, object]) -> Iterator[str]:
    """Yield what is written and was not read in exactly this release."""
    sections = asked.profile.llm_sections
    keys = [*_unread(arguments, sections["llm_args"])]
    for name in ("kv_cache_config", "cuda_graph_config"):
        section = arguments[name]
        inner = section if isinstance(section, Mapping) else {}
        keys += [f"{name}.{key}" for key in _unread(inner, sections[name])]
    if keys:
        yield (
            f"not certain of TensorRT-LLM {asked.version}, read in releases around it: "
            f"{', '.join(keys)}"
        )
    if asked.method is not None and not asked.method.certain:
        yield f"not certain of TensorRT-LLM {asked.version}: {asked.method.tag}'s keys"


def _unread(written: Iterable[str], section: LlmSection) -> Iterator[str]:
    for key in written:
        if key not in section.fields or not section.certain:
            yield key
