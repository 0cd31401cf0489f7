"""Measured points, and how far a prediction is from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.speed.constants import Constants
from specdeploy.core.speed.load import Array, Load, as_array
from specdeploy.core.speed.serving import Serving
from specdeploy.core.speed.steady import serve_steadily


@dataclass(frozen=True, slots=True)
class Measured:
    """Points of one deployment: one model, GPU, precision and parallelism.

    The fields of ``load`` and the other arrays have one entry per point. A time that was not
    measured is nan; ``draft_length`` 0 is serving without speculation.
    """

    serving: Serving
    load: Load
    ttft_ms: Array
    tpot_ms: Array
    draft_length: Array
    tokens_per_step: Array

    def __len__(self) -> int:
        """The number of points."""
        return len(self.tpot_ms)

    def only(self, points: NDArray[np.intp]) -> Measured:
        """Return the same deployment with some of its points."""
        return Measured(
            self.serving,
            self.load.only(points),
            self.ttft_ms[points],
            self.tpot_ms[points],
            self.draft_length[points],
            self.tokens_per_step[points],
        )


@dataclass(frozen=True, slots=True)
class Errors:
    """``predicted / measured - 1`` per point, over all deployments in order; nan: not measured."""

    ttft: Array
    tpot: Array

    @property
    def tpot_mean(self) -> float:
        """The mean absolute error of TPOT; nan without any."""
        return mean_absolute(self.tpot)

    @property
    def ttft_mean(self) -> float:
        """The mean absolute error of TTFT; nan without any."""
        return mean_absolute(self.ttft)


def errors_of(groups: Sequence[Measured], constants: Constants) -> Errors:
    """Return the errors of every point of ``groups``."""
    parts = [_errors(group, constants) for group in groups]
    return joined(parts)


def joined(parts: Sequence[Errors]) -> Errors:
    """Return the errors of several sets of points as one."""
    if not parts:
        return Errors(as_array([]), as_array([]))
    return Errors(
        np.concatenate([part.ttft for part in parts]),
        np.concatenate([part.tpot for part in parts]),
    )


def mean_absolute(errors: Array) -> float:
    """Return the mean absolute value of those that are known; nan without any."""
    known = errors[~np.isnan(errors)]
    return float(np.mean(np.abs(known))) if len(known) else float("nan")


def _errors(group: Measured, constants: Constants) -> Errors:
    way = serve_steadily(
        group.serving.using(constants),
        group.load,
        draft_length=group.draft_length,
        tokens_per_step=group.tokens_per_step,
    )
    return Errors(1e3 * way.ttft / group.ttft_ms - 1.0, 1e3 * way.tpot / group.tpot_ms - 1.0)
