"""``postprocessing``: token ids to text, each request on its own."""

from __future__ import annotations

import json
from typing import Any, final

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer


@final
class TritonPythonModel:
    """Triton's entry points."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read config.pbtxt's parameters; see there for their meaning."""
        config = json.loads(args["model_config"])
        values = {k: v["string_value"] for k, v in config["parameters"].items()}
        self._tokenizer = Tokenizer.from_file(values["tokenizer_file"])
        self._skip_special = values["skip_special_tokens"] == "true"

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each request's rows."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:  # noqa: ANN401 - Triton's classes
        arrays = {t.name(): t.as_numpy() for t in request.inputs()}
        tokens = arrays["TOKENS_BATCH"]
        rows = tokens.reshape(-1, tokens.shape[-1]).tolist()
        lengths = arrays["SEQUENCE_LENGTH"].reshape(-1).tolist()
        texts = [self._text(row[:n]) for row, n in zip(rows, lengths, strict=True)]
        output = np.array([texts], dtype=np.object_).reshape(tokens.shape[0], -1)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUTPUT", output)])

    def _text(self, ids: list[int]) -> bytes:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=self._skip_special)
        return text.encode()
