"""How a generation is said to the models that can be asked for one.

Three layouts are in use, and the names of a model's own tensors tell them apart: our
``speculative`` model and upstream's ``tensorrt_llm_bls`` and ``ensemble`` share one set of
names, the llmapi ``tensorrt_llm`` model has another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from specdeploy.core.generation import Counts, GenerationOptions
from specdeploy.core.record import Record
from specdeploy.core.tensor_bytes import TensorValue

ENTRY_MODELS: Final = ("speculative", "ensemble", "tensorrt_llm_bls", "tensorrt_llm")
"""Models that take text, the one that is asked by preference first."""

TEXT_INPUT: Final = "text_input"
TEXT_OUTPUT: Final = "text_output"

# Option -> the input that carries it; a model has one of them or none.
_INPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "max_tokens": ("max_tokens", "sampling_param_max_tokens"),
    "stream": ("stream", "streaming"),
    "draft_length": ("num_draft_tokens",),
    "temperature": ("temperature", "sampling_param_temperature"),
    "top_k": ("top_k", "sampling_param_top_k"),
    "top_p": ("top_p", "sampling_param_top_p"),
    "seed": ("random_seed", "seed", "sampling_param_seed"),
    "stop_words": ("stop_words", "sampling_param_stop"),
    "end_id": ("end_id", "sampling_param_end_id"),
}

# Sent as true to every model that has them: the answer without the prompt, with counts.
_SWITCHES: Final = (
    "exclude_input_in_output",
    "sampling_param_exclude_input_from_output",
    "sampling_param_return_perf_metrics",
)

# Field of Counts -> outputs that state it.
_COUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    "output_tokens": ("num_output_tokens",),
    "steps": ("num_spec_steps",),
    "drafted_tokens": ("total_draft_tokens",),
    "accepted_tokens": ("total_accepted_draft_tokens",),
}


class ModelInterface(Record):
    """The tensors of one model, as its server describes it."""

    name: str
    inputs: dict[str, str]
    """Input name to Triton data type (``INT32``, ``BYTES``)."""
    outputs: list[str]
    batched: bool
    """Shapes begin with a batch dimension."""


class Tensor(Record):
    """One input of a request."""

    name: str
    datatype: str
    shape: list[int]
    values: list[TensorValue]


class UnsupportedOptionError(ValueError):
    """The model has no input for something that was asked for."""


def request_tensors(
    interface: ModelInterface, prompt: str, options: GenerationOptions
) -> list[Tensor]:
    """Return the inputs that ask ``interface`` to continue ``prompt``.

    Raises:
        UnsupportedOptionError: an option that was set, or text, cannot be said to this model.
    """
    if TEXT_INPUT not in interface.inputs:
        raise UnsupportedOptionError(f"model {interface.name} takes tokens and not text")
    values: dict[str, list[TensorValue]] = {TEXT_INPUT: [prompt.encode()]}
    for option, candidates in _INPUTS.items():
        value = getattr(options, option)
        if value is None or value == []:
            continue
        name = next((name for name in candidates if name in interface.inputs), None)
        if name:
            values[name] = _as_values(value)
        elif option != "stream":
            raise UnsupportedOptionError(
                f"model {interface.name} has no input for {option} ({' or '.join(candidates)})"
            )
    for name in _SWITCHES:
        if name in interface.inputs:
            values[name] = [True]
    return [_tensor(interface, name, value) for name, value in values.items()]


def requested_outputs(interface: ModelInterface) -> list[str]:
    """Return the outputs worth asking for: the text and every count that there is."""
    wanted = [TEXT_OUTPUT, *(name for names in _COUNTS.values() for name in names)]
    return [name for name in wanted if name in interface.outputs]


def read_text(outputs: Mapping[str, Sequence[TensorValue]]) -> bytes:
    """Return the text of a response; a missing or zero-length tensor is empty text."""
    values = outputs.get(TEXT_OUTPUT)
    first = values[0] if values else b""
    return first if isinstance(first, bytes) else b""


def read_counts(outputs: Mapping[str, Sequence[TensorValue]]) -> Counts:
    """Return the counts of a response.

    Upstream's llmapi model sends its numbers as strings (``"12"``, ``"0.0"``).
    """
    found = {}
    for field, names in _COUNTS.items():
        values = next((outputs[name] for name in names if outputs.get(name)), None)
        found[field] = _as_count(values[0]) if values else None
    return Counts(**found)


def _as_values(value: object) -> list[TensorValue]:
    if isinstance(value, list):
        return [str(word).encode() for word in value]
    assert isinstance(value, int | float)  # noqa: S101 - GenerationOptions has no other types
    return [value]


def _tensor(interface: ModelInterface, name: str, values: list[TensorValue]) -> Tensor:
    datatype = interface.inputs[name]
    shape = [1, len(values)] if interface.batched else [len(values)]
    return Tensor(name=name, datatype=datatype, shape=shape, values=values)


def _as_count(value: TensorValue) -> int | None:
    try:
        return int(float(value))
    except ValueError:
        return None
