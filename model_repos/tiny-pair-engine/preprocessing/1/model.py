"""``preprocessing``: text to token ids, by the target's tokenizer.json and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import triton_python_backend_utils as pb_utils
from fields import Array, Fields, InputError
from tokenizers import Tokenizer
from word_lists import word_list


@final
class TritonPythonModel:
    """Triton's entry points."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read config.pbtxt's parameters; see there for their meaning."""
        config = json.loads(args["model_config"])
        values = {k: v["string_value"] for k, v in config["parameters"].items()}
        self._tokenizer = Tokenizer.from_file(values["tokenizer_file"])
        self._special = values["add_special_tokens"] == "true"
        self._end_ids: list[int] = json.loads(values["end_ids"])

    def execute(self, requests: list[Any]) -> list[Any]:
        """Encode each request's prompt and word lists."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:  # noqa: ANN401 - Triton's classes
        try:
            fields = Fields({t.name(): t.as_numpy() for t in request.inputs()})
            outputs = self._outputs(fields)
        except InputError as error:
            code = pb_utils.TritonError.INVALID_ARG
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), code))
        wanted = request.requested_output_names()
        tensors = [pb_utils.Tensor(k, v) for k, v in outputs.items() if k in wanted]
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _outputs(self, fields: Fields) -> dict[str, Array]:
        text = next(iter(fields.texts("QUERY")), "")
        if not text:
            raise InputError("the prompt (QUERY, text_input) is empty")
        ids = self._tokenizer.encode(text, add_special_tokens=self._special).ids
        end_id, pad_id, more_ends = self._end(fields)
        stop_words = [self._plain(word) for word in fields.texts("STOP_WORDS_DICT") if word]
        bad_words = [self._plain(word) for word in fields.texts("BAD_WORDS_DICT") if word]
        return {
            "INPUT_ID": _int32([ids]),
            "REQUEST_INPUT_LEN": _int32([[len(ids)]]),
            "REQUEST_OUTPUT_LEN": _int32([[fields.integer("REQUEST_OUTPUT_LEN", 0)]]),
            "STOP_WORDS_IDS": _int32([word_list([*stop_words, *more_ends])]),
            "BAD_WORDS_IDS": _int32([word_list(bad_words)]),
            "OUT_END_ID": _int32([[end_id]]),
            "OUT_PAD_ID": _int32([[pad_id]]),
        }

    def _end(self, fields: Fields) -> tuple[int, int, list[list[int]]]:
        """Return end id, pad id, and the target's other end ids as stop words.

        The leaf's contract has one end id; a request's own replaces all of the target's.
        """
        ends = self._end_ids or [-1]
        end_id = fields.integer("END_ID", ends[0])
        more = [] if "END_ID" in fields else [[i] for i in ends[1:]]
        return end_id, fields.integer("PAD_ID", max(end_id, 0)), more

    def _plain(self, word: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(word, add_special_tokens=False).ids
        return ids


def _int32(value: Sequence[Any]) -> Array:
    return np.array(value, dtype=np.int32)
