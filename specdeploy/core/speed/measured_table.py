"""Seconds of a forward pass put together from kernels that were timed one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.speed.load import Array, Terms, as_array


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Seconds against one size, straight between the points.

    Attributes:
        sizes: Ascending, at least two.
        seconds: As long as ``sizes``.
    """

    sizes: Array
    seconds: Array

    def at(self, size: Array) -> Array:
        """Return the seconds at ``size``; the last piece goes on, below the first it is level."""
        index, share = _place(self.sizes, size)
        return _between(self.seconds[index], self.seconds[index + 1], share)


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """Seconds against two sizes, bilinear between the points.

    Attributes:
        rows: Ascending, at least two.
        columns: Ascending, at least two.
        seconds: Of shape (rows, columns).
    """

    rows: Array
    columns: Array
    seconds: Array

    def at(self, row: Array, column: Array) -> Array:
        """Return the seconds at a point; outside as ``Curve.at``."""
        (i, down), (j, right) = _place(self.rows, row), _place(self.columns, column)
        here = _between(self.seconds[i, j], self.seconds[i, j + 1], right)
        below = _between(self.seconds[i + 1, j], self.seconds[i + 1, j + 1], right)
        return _between(here, below, down)


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """Nobody timed the kernels that were asked for; ``reason`` says which."""

    reason: str


@dataclass(frozen=True, slots=True)
class Kernels:
    """Seconds of one forward pass by kind of kernel, over all layers."""

    products: Array
    attention: Array
    layers: Array
    all_reduce: Array
    lm_head: Array

    def terms(self, *, bound_by_memory: NDArray[np.bool_], host: tuple[Array, Array]) -> Terms:
        """Return the terms of the pass.

        Args:
            bound_by_memory: Whether reading the weights takes longer than multiplying, which
                the times do not tell.
            host: Seconds of sampling and of the scheduler.
        """
        sampling, scheduler = host
        return Terms(
            weights=np.where(bound_by_memory, self.products, 0.0),
            compute=np.where(bound_by_memory, 0.0, self.products),
            attention=self.attention,
            layers=self.layers,
            all_reduce=self.all_reduce,
            lm_head=self.lm_head,
            sampling=sampling,
            scheduler=scheduler,
            draft=as_array(0.0),
            round_trip=as_array(0.0),
        )


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTable:
    """What the kernels of one model take on one kind of GPU, for its precision and ``tp``.

    Attributes:
        origin: What they were timed with, in words for the user.
        products: Matrix products and experts, by tokens of the pass.
        layers: Norms, activations, the embedding, by tokens of the pass.
        all_reduce: Sums over the GPUs and other exchange, by tokens of the pass.
        lm_head: The product with the vocabulary, by positions.
        decode: Attention of one new token each, by requests and context.
        prompt: Attention of whole prompts, by requests and prompt tokens.
    """

    origin: str
    products: Curve
    layers: Curve
    all_reduce: Curve
    lm_head: Curve
    decode: Surface
    prompt: Surface

    def decoding(self, requests: Array, per_request: Array, context: Array) -> Kernels:
        """Return one pass of ``requests`` times ``per_request`` positions.

        Attention was timed with one position per request. More of them read the same cache once
        and add what as many requests without a context take.
        """
        tokens = requests * per_request
        empty = self.decode.columns[0]
        more = self.decode.at(tokens, empty) - self.decode.at(requests, empty)
        return self._kernels(tokens, tokens, self.decode.at(requests, context) + more)

    def reading(self, requests: Array, per_request: Array, passes: Array) -> Kernels:
        """Return reading ``requests`` prompts of ``per_request`` tokens in ``passes`` passes."""
        each = self._kernels(requests * per_request / passes, requests, as_array(0.0))
        return Kernels(
            products=each.products * passes,
            attention=self.prompt.at(requests, per_request),
            layers=each.layers * passes,
            all_reduce=each.all_reduce * passes,
            lm_head=each.lm_head,
        )

    def _kernels(self, tokens: Array, rows: Array, attention: Array) -> Kernels:
        return Kernels(
            products=self.products.at(tokens),
            attention=attention,
            layers=self.layers.at(tokens),
            all_reduce=self.all_reduce.at(tokens),
            lm_head=self.lm_head.at(rows),
        )


def _place(sizes: Array, size: Array) -> tuple[NDArray[np.intp], Array]:
    """Return the piece that each size lies in, and how far; beyond the end more than 1."""
    index = np.clip(np.searchsorted(sizes, size, side="right") - 1, 0, len(sizes) - 2)
    share: Array = (size - sizes[index]) / (sizes[index + 1] - sizes[index])
    return index, np.maximum(share, 0.0)


def _between(first: Array, second: Array, share: Array) -> Array:
    between: Array = first * (1.0 - share) + second * share
    return between
