"""Reads one Triton request of the llmapi model. Plain Python and numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_SAMPLING: Final = (
    "best_of",
    "temperature",
    "top_k",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "max_tokens",
    "seed",
    "exclude_input_from_output",
    "return_perf_metrics",
)

# Declared because upstream's model has them.
_NOT_SERVED: Final = ("image_url", "lora_id", "lora_name", "lora_path", "lora_ckpt_source")


@dataclass(frozen=True)
class LlmRequest:
    """What a client asked for.

    Attributes:
        prompt: The text to continue.
        streaming: Send text as it comes.
        sampling: Keyword arguments of the engine's SamplingParams.
        draft_length: Tokens to draft per step; None when the client did not say.
        wanted: Optional outputs that were asked for, by their names.
    """

    prompt: str
    streaming: bool
    sampling: dict[str, Any]
    draft_length: int | None
    wanted: frozenset[str]


class RequestReader:
    """Reads tensors by name from one request.

    Args:
        pb_utils: Triton's Python module.
        request: An ``InferenceRequest``.
    """

    def __init__(self, pb_utils: Any, request: Any) -> None:  # noqa: ANN401 - Triton's types
        self._pb_utils = pb_utils
        self._request = request

    def scalar(self, name: str) -> Any:  # noqa: ANN401 - of the tensor's own type
        """Return the only element of an input, None when it was not sent."""
        values = self.values(name)
        if values is None:
            return None
        if len(values) != 1:
            raise ValueError(f"{name} must have one element, not {len(values)}")
        return values[0]

    def values(self, name: str) -> list[Any] | None:
        """Return the elements of an input, None when it was not sent."""
        tensor = self._pb_utils.get_input_tensor_by_name(self._request, name)
        if tensor is None:
            return None
        values: list[Any] = tensor.as_numpy().reshape(-1).tolist()
        return values

    def texts(self, name: str) -> list[str]:
        """Return the elements of a string input.

        Raises:
            ValueError: one of them is not UTF-8.
        """
        try:
            return [value.decode("utf-8") for value in self.values(name) or []]
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is not UTF-8 text") from error

    def asks_to_stop(self) -> bool:
        """Tell whether this request only ends another one of the same id."""
        return bool(self.scalar("stop"))

    def read(self, sampling_defaults: Mapping[str, Any]) -> LlmRequest:
        """Return the whole request.

        Raises:
            ValueError: names the input that is wrong or not served.
        """
        for name in _NOT_SERVED:
            if self.values(name) is not None:
                raise ValueError(f"{name} is not supported by this model")
        prompts = self.texts("text_input")
        if len(prompts) != 1:
            raise ValueError(f"text_input must hold one prompt, not {len(prompts)}")
        return LlmRequest(
            prompt=prompts[0],
            streaming=bool(self.scalar("streaming")),
            sampling=_greedy_as_default({**sampling_defaults, **self._sampling()}),
            draft_length=self.scalar("num_draft_tokens"),
            wanted=frozenset(self._wanted()),
        )

    def _sampling(self) -> dict[str, Any]:
        given = {name: self.scalar(f"sampling_param_{name}") for name in _SAMPLING}
        sampling = {name: value for name, value in given.items() if value is not None}
        if stop := self.texts("sampling_param_stop"):
            sampling["stop"] = stop
        return sampling

    def _wanted(self) -> list[str]:
        names = ("finish_reason", "stop_reason", "cumulative_logprob")
        return [name for name in names if self.scalar(f"return_{name}")]


def _greedy_as_default(sampling: dict[str, Any]) -> dict[str, Any]:
    """Return a greedy request's wishes without temperature, top_k and top_p.

    In TensorRT-LLM a request is greedy when it gives none of the three. A value out of range
    stays, for the engine to refuse.
    """
    if sampling.get("temperature") != 0:
        return sampling
    idle = {"temperature"}
    if sampling.get("top_k", 0) >= 0:
        idle.add("top_k")
    if 0 <= sampling.get("top_p", 1) <= 1:
        idle.add("top_p")
    return {name: value for name, value in sampling.items() if name not in idle}
