"""A request's tensors as plain, checked values: the same rules in every model.

Numbers must be finite, a request holds one prompt, and what a model cannot honour is an
error that names the tensor. Needs numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class InputError(ValueError):
    """A request cannot be honoured; the message names the tensor and the value."""


@final
class Fields:
    """The tensors of one request by name; an optional one may be absent."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        for name, array in arrays.items():
            if array.ndim and array.shape[0] > 1:
                raise InputError(f"{name} holds {array.shape[0]} rows; send one prompt a request")

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def array(self, name: str) -> Array:
        """Return a tensor without its batch dimension."""
        row: Array = self._arrays[name][0]
        return row

    def integer(self, name: str, default: int) -> int:
        """Return a scalar; ``default`` when it is absent."""
        value = self._scalar(name)
        return default if value is None else int(value)

    def number(self, name: str, default: float) -> float:
        """Return a finite scalar; ``default`` when it is absent."""
        value = self._scalar(name)
        if value is None:
            return default
        if not math.isfinite(value):
            raise InputError(f"{name} must be a finite number, not {value}")
        return float(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean scalar; ``default`` when it is absent."""
        value = self._scalar(name)
        return default if value is None else bool(value)

    def texts(self, name: str) -> list[str]:
        """Return a tensor of UTF-8 strings; empty when it is absent."""
        if name not in self._arrays:
            return []
        return [_decoded(name, item) for item in self._arrays[name].reshape(-1).tolist()]

    def ids(self, name: str) -> list[int]:
        """Return a list of token ids; empty when it is absent."""
        if name not in self._arrays:
            return []
        return [int(i) for i in self._arrays[name].reshape(-1).tolist()]

    def _scalar(self, name: str) -> Any:  # noqa: ANN401 - int, float or bool, as the tensor says
        if name not in self._arrays:
            return None
        values = self._arrays[name].reshape(-1)
        if values.size != 1:
            raise InputError(f"{name} must hold one value, not {values.size}")
        return values[0].item()


def _decoded(name: str, item: bytes | str) -> str:
    if isinstance(item, str):
        return item
    try:
        return item.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8: {error}") from error


def refuse_unsupported(
    fields: Fields, *, honoured: frozenset[str], neutral: Mapping[str, tuple[float, ...]]
) -> None:
    """Refuse tensors that would have to be ignored.

    Args:
        fields: The request.
        honoured: Names that the model acts on.
        neutral: Names it does not act on, with the values that ask for nothing.
    """
    for name in fields:
        if name in honoured:
            continue
        if name not in neutral:
            raise InputError(f"{name} is not supported by this model; leave it out")
        value = fields.number(name, neutral[name][0])
        if value not in neutral[name]:
            allowed = " or ".join(f"{v:g}" for v in neutral[name])
            raise InputError(f"{name} = {value:g} is not supported by this model; use {allowed}")


class SamplingNames(NamedTuple):
    """Names of the sampling tensors, which differ between the leaf and its callers."""

    temperature: str = "temperature"
    top_k: str = "top_k"
    top_p: str = "top_p"
    seed: str = "random_seed"


LEAF_NAMES: Final = SamplingNames(top_k="runtime_top_k", top_p="runtime_top_p")


@dataclass(frozen=True)
class Sampling:
    """How one request chooses tokens.

    Attributes:
        temperature: 0 is greedy.
        top_k: Keep the k most likely tokens; 0 keeps all, 1 is greedy.
        top_p: Keep the fewest tokens whose probabilities reach this sum; 1 keeps all.
        seed: Starts the request's random numbers.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        """True when the most likely token is always taken."""
        return self.temperature == 0 or self.top_k == 1


GREEDY: Final = Sampling()


def read_sampling(fields: Fields, *, names: SamplingNames, defaults: Sampling) -> Sampling:
    """Read the sampling tensors; an absent one takes the deployment's default.

    A request that filters (top-k above 1, top-p below 1) without a temperature, where the
    deployment is greedy, means temperature 1: greedy would ignore what it asked for.
    """
    top_k = fields.integer(names.top_k, defaults.top_k)
    top_p = fields.number(names.top_p, defaults.top_p)
    filters = (names.top_k in fields and top_k > 1) or (names.top_p in fields and top_p < 1)
    fallback = defaults.temperature or (1.0 if filters else 0.0)
    temperature = fields.number(names.temperature, fallback)
    if temperature < 0:
        raise InputError(f"{names.temperature} must be at least 0, not {temperature:g}")
    if top_k < 0:
        raise InputError(f"{names.top_k} must be at least 0, not {top_k}")
    if not 0 < top_p <= 1:
        raise InputError(f"{names.top_p} must be above 0 and at most 1, not {top_p:g}")
    return Sampling(temperature, top_k, top_p, fields.integer(names.seed, defaults.seed))


def read_lengths(*, prompt: int, max_tokens: int, max_seq_len: int, names: tuple[str, str]) -> None:
    """Refuse an empty prompt, an answer of no tokens and what does not fit the server.

    Args:
        prompt: Tokens of the prompt.
        max_tokens: Tokens asked for.
        max_seq_len: Prompt and answer together, as the server was planned.
        names: The tensors that hold the prompt and the count.
    """
    text_name, count_name = names
    if prompt < 1:
        raise InputError(f"{text_name} is empty")
    if max_tokens < 1:
        raise InputError(f"{count_name} must be at least 1, not {max_tokens}")
    if prompt + max_tokens > max_seq_len:
        raise InputError(
            f"{text_name} has {prompt} tokens and {count_name} is {max_tokens}: together more "
            f"than the {max_seq_len} tokens this server was planned for"
        )
