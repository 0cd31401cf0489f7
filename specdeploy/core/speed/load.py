"""What the server is asked for, and what the arithmetic passes around."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[np.float64]


def as_array(value: ArrayLike) -> Array:
    """Return numbers as floats of 64 bits; a scalar becomes an array of no dimension."""
    return np.asarray(value, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Load:
    """Steady concurrency: ``batch`` clients that each send the next request when one is answered.

    Every field is a number or an array; arrays broadcast with each other.

    Attributes:
        batch: Requests in flight, waiting ones included.
        input_len: Prompt tokens of each.
        output_len: Tokens generated for each; a second one is counted where there is none.
        resident: Requests that memory holds at once when speculating, at least 1; more wait.
            None: all.
        resident_plain: The same without speculation; None: as ``resident``.
        equal_lengths: Whether all requests have the same lengths, as those of most benchmarks.
            Such requests end together, so that their successors queue together.
        batch_wait_iters: Steps for which the server lets a prompt wait for company, TensorRT-LLM's
            ``batch_wait_timeout_iters``.
    """

    batch: ArrayLike
    input_len: ArrayLike
    output_len: ArrayLike
    resident: ArrayLike | None = None
    resident_plain: ArrayLike | None = None
    equal_lengths: ArrayLike = False
    batch_wait_iters: ArrayLike = 0

    def only(self, points: NDArray[np.intp]) -> Load:
        """Return some of the points of a load; what one number says of all stays one number."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        many = {name: as_array(value) for name, value in values.items() if np.ndim(value)}
        return replace(self, **{name: value[points] for name, value in many.items()})


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds of one forward pass by what they are spent on; the terms add up to the total.

    Attributes:
        weights: Matrix products while reading the weights takes longer than multiplying.
        compute: Matrix products while multiplying takes longer.
        attention: Reading the KV cache, or attention's own products if they take longer.
        layers: Launch floors.
        all_reduce: Sums over the GPUs that share a model.
        lm_head: The product with the vocabulary.
        sampling: Choosing tokens.
        scheduler: The host's work that the GPU waits for.
        draft: Drafting, all of it.
        round_trip: Calls between Triton models.
    """

    weights: Array
    compute: Array
    attention: Array
    layers: Array
    all_reduce: Array
    lm_head: Array
    sampling: Array
    scheduler: Array
    draft: Array
    round_trip: Array

    @property
    def total(self) -> Array:
        """The sum of the terms."""
        return reduce(add, self.by_name().values())

    def by_name(self) -> dict[str, Array]:
        """Return the terms by name, in the order in which they are declared."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
