"""Calls of the models behind ``speculative``, by the tensors of TensorRT-LLM's backend.

A call carries as few tensors as it can, since each one costs time: greedy requests send no
sampling tensors, no end id is sent (``speculative`` ends answers itself, and without one a
draft never stops early), and the leaves leave the prompt out of their answers
(``exclude_input_in_output`` in their config.pbtxt).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, final

import numpy as np
from fields import Array, Sampling
from rounds import Proposal, RoundError, step_seed

_DRAFT, _TARGET = 0, 1
_TOKENS = ("output_ids", "sequence_length")


@final
class Leaves:
    """The leaf models of one request.

    Args:
        pb_utils: Triton's module, passed in so that tests need no server.
        sampling: The request's.
        use_draft_logits: Judge drafted tokens by the scores they were drawn from.
        vocab_size: Rows of the target; a draft with more may propose ids that it lacks.
    """

    def __init__(
        self,
        pb_utils: Any,  # noqa: ANN401
        *,
        sampling: Sampling,
        use_draft_logits: bool,
        vocab_size: int,
    ) -> None:
        self._pb_utils = pb_utils
        self._sampling = sampling
        self._with_logits = use_draft_logits
        self._vocab_size = vocab_size

    def prompt_ids(self, model: str, text: str, max_tokens: int) -> list[int]:
        """Encode a prompt by the preprocessing model."""
        response = self._infer(
            model,
            [
                self._tensor("QUERY", np.array([[text.encode()]], dtype=np.object_)),
                self._tensor("REQUEST_OUTPUT_LEN", np.array([[max_tokens]], dtype=np.int32)),
            ],
            ["INPUT_ID"],
        )
        return [int(i) for i in self._output(response, "INPUT_ID", model).reshape(-1)]

    def draft(self, model: str, tokens: Array, k: int, step: int) -> Proposal:
        """Let the draft model go on for ``k`` tokens, up to the first that the target lacks."""
        wanted = [*_TOKENS, "generation_logits"] if self._with_logits else [*_TOKENS]
        inputs = self._inputs(tokens, k, step, _DRAFT)
        if self._with_logits:
            inputs.append(self._tensor("return_generation_logits", np.array([[True]])))
        response = self._infer(model, inputs, wanted)
        drawn = self._generated(response, model)
        ids = list(takewhile(lambda i: i < self._vocab_size, drawn))
        if not self._with_logits:
            return Proposal(ids)
        return Proposal(ids, self._output(response, "generation_logits", model)[0, : len(ids)])

    def verify(self, model: str, tokens: Array, proposal: Proposal, step: int) -> list[int]:
        """Let the target judge a proposal; return what it accepts and its own next token."""
        inputs = self._inputs(tokens, len(proposal.ids) + 1, step, _TARGET)
        if proposal.ids:
            ids = np.array([proposal.ids], dtype=np.int32)
            inputs.append(self._tensor("draft_input_ids", ids))
        if proposal.logits is not None:
            inputs.append(self._tensor("draft_logits", proposal.logits))
        return self._generated(self._infer(model, inputs, [*_TOKENS]), model)

    def _inputs(self, tokens: Array, output_len: int, step: int, role: int) -> list[Any]:
        inputs = [
            self._tensor("input_ids", tokens[None]),
            self._tensor("input_lengths", np.array([[len(tokens)]], dtype=np.int32)),
            self._tensor("request_output_len", np.array([[output_len]], dtype=np.int32)),
        ]
        if not self._sampling.greedy:
            inputs += self._sampling_inputs(step_seed(self._sampling.seed, step, role))
        return inputs

    def _sampling_inputs(self, seed: int) -> list[Any]:
        sampling = self._sampling
        return [
            self._tensor("temperature", np.array([[sampling.temperature]], dtype=np.float32)),
            self._tensor("runtime_top_k", np.array([[sampling.top_k]], dtype=np.int32)),
            self._tensor("runtime_top_p", np.array([[sampling.top_p]], dtype=np.float32)),
            self._tensor("random_seed", np.array([[seed]], dtype=np.uint64)),
        ]

    def _tensor(self, name: str, array: Array) -> Any:  # noqa: ANN401 - Triton's class
        return self._pb_utils.Tensor(name, array)

    def _infer(self, model: str, inputs: list[Any], outputs: Sequence[str]) -> Any:  # noqa: ANN401
        request = self._pb_utils.InferenceRequest(
            model_name=model, requested_output_names=list(outputs), inputs=inputs
        )
        response = request.exec()
        if response.has_error():
            raise RoundError(f"{model}: {response.error().message()}")
        return response

    def _generated(self, response: Any, model: str) -> list[int]:  # noqa: ANN401
        length = int(self._output(response, "sequence_length", model).reshape(-1)[0])
        ids = self._output(response, "output_ids", model).reshape(-1)[:length]
        return [int(i) for i in ids.tolist()]

    def _output(self, response: Any, name: str, model: str) -> Array:  # noqa: ANN401
        tensor = self._pb_utils.get_output_tensor_by_name(response, name)
        if tensor is None:
            raise RoundError(f"{model} answered without {name}")
        array: Array = tensor.as_numpy()
        return array
