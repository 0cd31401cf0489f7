"""Stands for the package ``tensorrt_llm`` of one release, in front of the reference engine.

As strict as the recorded signatures: an argument, tag or nested key that the release does not
have is refused, as it would be there. Counts of speculation are given at the end only, only when
the request asked for them, and without the additions of the reference engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import reference_llm
from llm_types import CompletionOutput, SamplingParams
from llmapi_signatures import accept

# What both engines read; the rest is for GPUs.
_SHARED = ("model", "dtype", "max_batch_size", "max_num_tokens", "max_seq_len")
_DRAFTING = ("decoding_type", "max_draft_len", "max_matching_ngram_size")
_PATHS = ("speculative_model", "speculative_model_dir")


class Completion:
    """What ``tensorrt_llm`` tells of an answer so far."""

    def __init__(self, ours: CompletionOutput, *, measured: bool) -> None:
        self.text, self.token_ids = ours.text, list(ours.token_ids)
        self.finish_reason, self.stop_reason = ours.finish_reason, ours.stop_reason
        self.cumulative_logprob = 0.0
        found = ours.request_perf_metrics
        counts = found.speculative_decoding
        speculation = SimpleNamespace(
            acceptance_rate=counts.acceptance_rate,
            total_accepted_draft_tokens=counts.total_accepted_draft_tokens,
            total_draft_tokens=counts.total_draft_tokens,
        )
        metrics = SimpleNamespace(
            speculative_decoding=speculation, timing_metrics=found.timing_metrics
        )
        ended = ours.finish_reason is not None
        self.request_perf_metrics = metrics if measured and ended else None


class Result:
    """A request; iterating computes it, one step at a time."""

    def __init__(self, ours: reference_llm.RequestOutput, *, measured: bool) -> None:
        self._ours, self._measured = ours, measured

    @property
    def outputs(self) -> list[Completion]:
        return [Completion(output, measured=self._measured) for output in self._ours.outputs]

    def abort(self) -> None:
        self._ours.abort()

    def __iter__(self) -> Iterator[Result]:
        for _ in self._ours:
            yield self


def tensorrt_llm(version: str) -> ModuleType:
    """Return the package of a release."""

    class LLM:
        def __init__(self, **arguments: Any) -> None:  # noqa: ANN401 - the body of model.yaml
            accept(version, arguments)
            self._ours = reference_llm.LLM(**_ours(arguments))

        def generate_async(
            self,
            inputs: str,
            sampling_params: SamplingParams | None = None,
            *,
            streaming: bool = False,
        ) -> Result:
            params = sampling_params or SamplingParams()
            ours = self._ours.generate_async(inputs, params, streaming=streaming)
            return Result(ours, measured=params.return_perf_metrics)

        def shutdown(self) -> None:
            self._ours.shutdown()

    package = ModuleType("tensorrt_llm")
    vars(package).update(LLM=LLM, SamplingParams=SamplingParams, __version__=version)
    return package


def _ours(arguments: Mapping[str, Any]) -> dict[str, Any]:
    ours = {name: arguments[name] for name in _SHARED}
    given = arguments.get("speculative_config")
    if given is None:
        return ours
    drafting = {name: given[name] for name in _DRAFTING if name in given}
    paths = [given[name] for name in _PATHS if name in given]
    return {
        **ours,
        "speculative_config": {**drafting, "speculative_model": next(iter(paths), None)},
    }
