"""Turns the engine's outputs into the tensors of the llmapi model, each of its declared type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np


class NamedArray(NamedTuple):
    """One output tensor."""

    name: str
    array: np.ndarray[Any, np.dtype[Any]]


def text(name: str, value: str) -> NamedArray:
    """Return a string tensor with one element."""
    return NamedArray(name, np.array([value.encode("utf-8")], dtype=np.object_))


def piece(completion: Any, shown: str) -> Iterator[NamedArray]:  # noqa: ANN401 - the engine's type
    """Yield what every response carries: text, and tokens and steps so far."""
    yield text("text_output", shown)
    yield _int32("num_output_tokens", len(completion.token_ids))
    steps = getattr(speculation_of(completion), "steps", None)
    if steps is not None:
        yield _int32("num_spec_steps", steps)


def totals(completion: Any, wanted: frozenset[str]) -> Iterator[NamedArray]:  # noqa: ANN401
    """Yield what only the last response carries: totals over the whole request."""
    if "finish_reason" in wanted:
        yield text("finish_reason", completion.finish_reason or "")
    if "stop_reason" in wanted:
        reason = completion.stop_reason
        yield text("stop_reason", "" if reason is None else str(reason))
    if "cumulative_logprob" in wanted:
        yield _float32("cumulative_logprob", completion.cumulative_logprob)
    speculation = speculation_of(completion)
    if speculation is not None:
        yield _float32("acceptance_rate", speculation.acceptance_rate)
        yield _int32("total_accepted_draft_tokens", speculation.total_accepted_draft_tokens)
        yield _int32("total_draft_tokens", speculation.total_draft_tokens)
    yield from _times(completion)


def _times(completion: Any) -> Iterator[NamedArray]:  # noqa: ANN401 - the engine's type
    metrics = getattr(completion, "request_perf_metrics", None)
    timing = getattr(metrics, "timing_metrics", None)
    if timing is None:
        return
    for name in ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time"):
        nanoseconds = round(getattr(timing, name).total_seconds() * 1e9)
        yield NamedArray(f"{name}_ns", np.array([nanoseconds], dtype=np.int64))


def speculation_of(completion: Any) -> Any:  # noqa: ANN401 - the engine's type
    """Return the counts of speculation, None where the engine keeps none."""
    metrics = getattr(completion, "request_perf_metrics", None)
    return getattr(metrics, "speculative_decoding", None)


def _int32(name: str, value: int) -> NamedArray:
    return NamedArray(name, np.array([value], dtype=np.int32))


def _float32(name: str, value: float) -> NamedArray:
    return NamedArray(name, np.array([value], dtype=np.float32))
