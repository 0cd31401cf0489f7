"""A stand-in for the speculative model: answers with the words of the prompt, one a chunk.

The parameter ``behaviour`` of config.pbtxt, or a prompt such as ``!stall``, breaks it.
"""

from __future__ import annotations

import json
import os
import signal
import ssl  # noqa: F401 - fails when the stub runs on another libpython
import sys
import time
from collections.abc import Callable

import numpy as np
import triton_python_backend_utils as pb_utils


def _raise() -> None:
    raise ValueError("the weights are missing")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


BEHAVIOURS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "exit": lambda: sys.exit(3),
    "die": _die,
    "kill-server": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "hang": lambda: time.sleep(600),
}


class TritonPythonModel:
    def initialize(self, arguments: dict[str, str]) -> None:
        parameters = json.loads(arguments["model_config"])["parameters"]
        self.behaviour = parameters["behaviour"]["string_value"]
        BEHAVIOURS.get(self.behaviour, lambda: None)()

    def execute(self, requests: list) -> None:  # type: ignore[type-arg]
        for request in requests:
            sender = request.get_response_sender()
            try:
                self.answer(request, sender)
            except ValueError as error:
                failure = pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
                sender.send(failure)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def answer(self, request, sender) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        prompt = _read(request, "text_input").decode()
        if prompt.startswith("!"):
            BEHAVIOURS[prompt[1:]]()
        words = [] if self.behaviour == "empty" else prompt.split()
        words = words[: int(_read(request, "max_tokens"))]
        if _read(request, "stream"):
            for count, word in enumerate(words, start=1):
                sender.send(_response(f"{word} ", count))
        else:
            sender.send(_response("".join(f"{word} " for word in words), len(words)))


def _read(request, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return tensor.as_numpy().reshape(-1)[0] if tensor is not None else None


def _response(text: str, tokens: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Pretend that every step drafts four tokens and accepts one of them."""
    counts = {
        "total_accepted_draft_tokens": tokens,
        "total_draft_tokens": 4 * tokens,
        "num_spec_steps": tokens,
        "num_output_tokens": tokens,
    }
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor("text_output", np.array([text.encode()], dtype=np.object_)),
            *(pb_utils.Tensor(name, np.array([n], np.int32)) for name, n in counts.items()),
        ]
    )
