"""A reference leaf model: TensorRT-LLM's tensors over Hugging Face transformers on the CPU.

Rendered twice, as target and as draft. Behind ``speculative`` it answers each call at once
(not decoupled), calls one after the other: a forward pass uses all the threads it was given,
so calls side by side would only share them. Behind the ensemble it is decoupled and makes
whole answers (:mod:`streaming`). Sessions for ``max_requests`` requests keep what was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, cast, final

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from causal_lm import Dtype, load_model
from fields import Array, Fields, InputError, Sampling
from leaf import TOKENS_PER_BLOCK, Leaf, LeafAnswer
from leaf_request import LeafCall, LeafLimits, read_call
from streaming import CancelledError, Chunk, Decoder, PlainIds, Streamer, WholeCharacters
from tokenizers import Tokenizer

_FINAL: Final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


@final
class TritonPythonModel:
    """Triton's entry points; one object per server and leaf."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model that config.pbtxt's parameters name; see there for their meaning."""
        config = json.loads(args["model_config"])
        values = {k: v["string_value"] for k, v in config["parameters"].items()}
        torch.set_num_threads(int(values["threads"]))
        model = load_model(
            values["gpt_model_path"],
            dtype=cast("Dtype", values["dtype"]),
            lean=values["lean"] == "true",
            trust_remote_code=values["trust_remote_code"] == "true",
        )
        slots = int(values["max_requests"])
        self._leaf = Leaf(model, slots=slots)
        decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self._limits = _limits(values, model.vocab_size, decoupled=decoupled)
        self._streamer = None
        if decoupled:
            self._streamer = Streamer(self._leaf, slots=slots, decoder=_decoder(values))

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Answer calls, at once or (decoupled) as they are made."""
        if self._streamer is None:
            return [self._answer(request) for request in requests]
        for request in requests:
            self._begin(request, self._streamer)
        return None

    def finalize(self) -> None:
        """Stop the thread that makes streamed answers."""
        if self._streamer is not None:
            self._streamer.close()

    def _answer(self, request: Any) -> Any:  # noqa: ANN401 - Triton's classes
        try:
            call = read_call(_fields(request), self._limits)
            answer = self._leaf.answer(call)
        except Exception as error:  # noqa: BLE001 - every call gets an answer
            return pb_utils.InferenceResponse(error=_triton_error(error))
        wanted = request.requested_output_names()
        return _response({k: v for k, v in _outputs(call, answer).items() if k in wanted})

    def _begin(self, request: Any, streamer: Streamer) -> None:  # noqa: ANN401
        sender = request.get_response_sender()
        try:
            call = read_call(_fields(request), self._limits)
        except InputError as error:
            sender.send(pb_utils.InferenceResponse(error=_triton_error(error)), flags=_FINAL)
            return
        streamer.submit(call, TritonReceiver(sender, call))


@final
class TritonReceiver:
    """Sends the chunks of one answer; one that is not streamed is sent at its end."""

    def __init__(self, sender: Any, call: LeafCall) -> None:  # noqa: ANN401
        self.is_cancelled = sender.is_cancelled
        self._sender = sender
        self._streaming = call.streaming
        self._ids = [] if call.exclude_input or call.streaming else list(call.ids)

    def send(self, chunk: Chunk) -> None:
        """Send a chunk, or keep it for the end."""
        self._ids += chunk.ids
        if not (self._streaming or chunk.last):
            return
        outputs = _token_outputs(self._ids, chunk.num_output_tokens)
        self._sender.send(_response(outputs), flags=_FINAL if chunk.last else 0)
        self._ids = []

    def fail(self, error: Exception) -> None:
        """End the answer with an error."""
        response = pb_utils.InferenceResponse(error=_triton_error(error))
        self._sender.send(response, flags=_FINAL)


def _limits(values: dict[str, str], vocab_size: int, *, decoupled: bool) -> LeafLimits:
    return LeafLimits(
        max_seq_len=int(values["max_seq_len"]),
        vocab_size=vocab_size,
        decoupled=decoupled,
        exclude_input=values["exclude_input_in_output"] == "true",
        sampling=Sampling(
            temperature=float(values["temperature"]),
            top_k=int(values["top_k"]),
            top_p=float(values["top_p"]),
            seed=int(values["random_seed"]),
        ),
    )


def _decoder(values: dict[str, str]) -> Callable[[LeafCall], Decoder]:
    file = values["tokenizer_file"]
    if not file:
        return lambda _: PlainIds()
    tokenizer = Tokenizer.from_file(file)
    return lambda call: WholeCharacters(tokenizer, call)


def _fields(request: Any) -> Fields:  # noqa: ANN401 - Triton's class
    return Fields({t.name(): t.as_numpy() for t in request.inputs()})


def _outputs(call: LeafCall, answer: LeafAnswer) -> dict[str, Array]:
    ids = answer.ids if call.exclude_input else [*call.ids, *answer.ids]
    outputs = _token_outputs(ids, len(answer.ids))
    if answer.logits is not None:
        outputs["generation_logits"] = answer.logits.numpy()[None, None]
    if call.perf_metrics:
        outputs |= _perf_outputs(call, answer)
    return outputs


def _token_outputs(ids: list[int], num_output_tokens: int) -> dict[str, Array]:
    # Without ids one that is not counted is sent: a tensor of no bytes does not pass everywhere.
    return {
        "output_ids": np.array([[ids or [0]]], dtype=np.int32),
        "sequence_length": np.array([[len(ids)]], dtype=np.int32),
        "num_output_tokens": np.array([[num_output_tokens]], dtype=np.int32),
    }


def _perf_outputs(call: LeafCall, answer: LeafAnswer) -> dict[str, Array]:
    blocks = -(-(len(call.ids) + len(answer.ids)) // TOKENS_PER_BLOCK)
    reused = answer.reused // TOKENS_PER_BLOCK
    rate = answer.accepted / answer.drafted if answer.drafted else 0.0
    counts = {
        "kv_cache_alloc_total_blocks": blocks,
        "kv_cache_reused_blocks": reused,
        "kv_cache_alloc_new_blocks": blocks - reused,
        "total_accepted_draft_tokens": answer.accepted,
        "total_draft_tokens": answer.drafted,
    }
    outputs: dict[str, Array] = {k: np.array([[v]], np.int32) for k, v in counts.items()}
    outputs["acceptance_rate"] = np.array([[rate]], dtype=np.float32)
    return outputs


def _response(outputs: dict[str, Array]) -> Any:  # noqa: ANN401 - Triton's class
    return pb_utils.InferenceResponse(
        output_tensors=[pb_utils.Tensor(name, array) for name, array in outputs.items()]
    )


def _triton_error(error: Exception) -> Any:  # noqa: ANN401 - Triton's class
    if isinstance(error, InputError):
        return pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
    if isinstance(error, CancelledError):
        return pb_utils.TritonError(str(error), pb_utils.TritonError.CANCELLED)
    pb_utils.Logger.log_error(f"leaf model: {error!r}")
    return pb_utils.TritonError(f"leaf model failed: {error!r}", pb_utils.TritonError.INTERNAL)
