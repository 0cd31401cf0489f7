"""One call of a leaf model: the tensors of TensorRT-LLM's backend as checked values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from fields import (
    GREEDY,
    LEAF_NAMES,
    Array,
    Fields,
    InputError,
    Sampling,
    read_lengths,
    read_sampling,
    refuse_unsupported,
)

HONOURED: Final = frozenset(
    {
        "input_ids", "input_lengths", "request_output_len", "draft_input_ids", "draft_logits",
        "end_id", "pad_id", "stop_words_list", "bad_words_list", "temperature",
        "runtime_top_k", "runtime_top_p", "random_seed", "min_length", "streaming",
        "return_generation_logits", "return_perf_metrics", "exclude_input_in_output",
    }
)  # fmt: skip

# Values that ask for nothing; any other would have to be ignored.
NEUTRAL: Final[dict[str, tuple[float, ...]]] = {
    "num_return_sequences": (1,),
    "beam_width": (1,),
    "len_penalty": (0.0, 1.0),
    "early_stopping": (0, 1),
    "beam_search_diversity_rate": (0.0,),
    "repetition_penalty": (1.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "return_log_probs": (0,),
    "return_context_logits": (0,),
    "stop": (0,),
}


@dataclass(frozen=True)
class LeafCall:
    """What one call asks for.

    Attributes:
        ids: The tokens so far.
        output_len: Most tokens to answer.
        draft_ids: Tokens to verify; empty for plain generation.
        draft_logits: What they were drawn from, ``[k, vocabulary]``; None when certain.
        sampling: How tokens are chosen.
        end_id: Ends the answer; None: no token does.
        stop_sequences: Token runs that end the answer.
        streaming: Answer token by token.
        return_logits: Answer the scores of the generated tokens as well.
        perf_metrics: Answer KV reuse and acceptance as well.
        exclude_input: Answer without ``ids``.
    """

    ids: list[int]
    output_len: int
    draft_ids: list[int]
    draft_logits: Array | None
    sampling: Sampling
    end_id: int | None
    stop_sequences: list[list[int]]
    streaming: bool
    return_logits: bool
    perf_metrics: bool
    exclude_input: bool


@dataclass(frozen=True)
class LeafLimits:
    """What the deployment decided.

    Attributes:
        max_seq_len: Prompt and answer together.
        vocab_size: Columns of the logits.
        decoupled: Whether answers may be streamed.
        exclude_input: Used when a call does not say.
        sampling: Used when a call does not say.
    """

    max_seq_len: int
    vocab_size: int
    decoupled: bool
    exclude_input: bool
    sampling: Sampling = GREEDY


def read_call(fields: Fields, limits: LeafLimits) -> LeafCall:
    """Check a call's tensors.

    Raises:
        InputError: names the tensor that cannot be honoured.
    """
    refuse_unsupported(fields, honoured=HONOURED, neutral=NEUTRAL)
    if word_lists(fields, "bad_words_list"):
        raise InputError("bad_words_list is not supported by this model; leave it out")
    call = LeafCall(
        ids=_ids(fields, "input_ids", limits.vocab_size)[: fields.integer("input_lengths", 0)],
        output_len=fields.integer("request_output_len", 0),
        draft_ids=_ids(fields, "draft_input_ids", limits.vocab_size),
        draft_logits=_draft_logits(fields),
        sampling=read_sampling(fields, names=LEAF_NAMES, defaults=limits.sampling),
        end_id=_end_id(fields),
        stop_sequences=word_lists(fields, "stop_words_list"),
        streaming=fields.flag("streaming"),
        return_logits=fields.flag("return_generation_logits"),
        perf_metrics=fields.flag("return_perf_metrics"),
        exclude_input=fields.flag("exclude_input_in_output", default=limits.exclude_input),
    )
    read_lengths(
        prompt=len(call.ids),
        max_tokens=call.output_len,
        max_seq_len=limits.max_seq_len,
        names=("input_ids", "request_output_len"),
    )
    _check_draft(call, limits.vocab_size)
    _check_min_length(fields, call)
    if call.streaming and not limits.decoupled:
        raise InputError("streaming needs a decoupled model; this one answers once")
    return call


def word_lists(fields: Fields, name: str) -> list[list[int]]:
    """Read a ``[2, n]`` list of token runs; empty when absent or empty.

    The first row holds their ids one after the other, the second where each ends; -1 fills
    it up.
    """
    if name not in fields:
        return []
    ids, ends = fields.array(name).reshape(2, -1).tolist()
    borders = [0, *(end for end in ends if end > 0)]
    return [ids[a:b] for a, b in pairwise(borders) if b > a]


def _ids(fields: Fields, name: str, vocab_size: int) -> list[int]:
    ids = fields.ids(name)
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        raise InputError(f"{name} holds an id outside 0..{vocab_size - 1}")
    return ids


def _draft_logits(fields: Fields) -> Array | None:
    return fields.array("draft_logits") if "draft_logits" in fields else None


def _end_id(fields: Fields) -> int | None:
    end_id = fields.integer("end_id", -1)
    return end_id if end_id >= 0 else None


def _check_draft(call: LeafCall, vocab_size: int) -> None:
    k = len(call.draft_ids)
    if k and call.output_len != k + 1:
        raise InputError(
            f"request_output_len is {call.output_len}; with {k} tokens in draft_input_ids it "
            f"must be {k + 1}"
        )
    if call.draft_logits is not None and call.draft_logits.shape != (k, vocab_size):
        raise InputError(
            f"draft_logits has the shape {list(call.draft_logits.shape)}, not [{k}, {vocab_size}]"
        )
    if call.draft_logits is not None and np.isnan(call.draft_logits).any():
        raise InputError("draft_logits holds NaN")


def _check_min_length(fields: Fields, call: LeafCall) -> None:
    """Without an end id and stop words an answer always has its full length."""
    ends_early = call.end_id is not None or call.stop_sequences
    if fields.integer("min_length", 0) > 1 and ends_early:
        raise InputError("min_length is not supported together with end_id or stop_words_list")
