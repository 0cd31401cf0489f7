"""How far from a prediction unseen measurements lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.speed import Constants
from speed_fit.fits import fit_drafting
from speed_fit.published import PublishedPoint, curves_of

LEVEL: Final = 0.8
Factors = tuple[float, float]


def factors_of(errors: NDArray[np.float64]) -> Factors:
    """Return what to multiply a prediction with to get the ends of its interval.

    ``errors`` are predicted / measured - 1 of unseen points; ``LEVEL`` of them lie inside, as
    many above as below. The prediction itself is always inside.
    """
    ratios = 1.0 / (1.0 + errors[~np.isnan(errors)])
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return min(float(low), 1.0), max(float(high), 1.0)


def coverage(errors: NDArray[np.float64], factors: Factors) -> float:
    """Return the share of points inside the interval."""
    ratios = 1.0 / (1.0 + errors[~np.isnan(errors)])
    return float(np.mean((ratios >= factors[0]) & (ratios <= factors[1])))


def unseen_speedups(points: Sequence[PublishedPoint], served: Constants) -> NDArray[np.float64]:
    """Return errors of published speedups, each by constants fitted without its curve."""
    curves = curves_of(points)
    errors = []
    for name, curve in curves.items():
        fitted = fit_drafting([point for point in points if point.curve != name], served)
        errors += [point.predicted(fitted) / point.speedup - 1 for point in curve]
    return np.array(errors)
