"""How far from a prediction unseen measurements lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.speed import Constants
from specdeploy.core.speed.intervals import Factors, factors_of
from speed_fit.fits import fit_drafting
from speed_fit.published import PublishedPoint, curves_of

LEVEL: Final = 0.8
_SHARES: Final = (0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98)


def share_to_ask_for(folds: Sequence[NDArray[np.float64]]) -> float:
    """Return the least share for which ``LEVEL`` of each fold lie inside the others' interval.

    Points of one deployment err alike, so that an interval made from some deployments holds
    fewer of another's points than of their own.
    """
    return next((share for share in _SHARES if nested_coverage(folds, share) >= LEVEL), 1.0)


def nested_coverage(folds: Sequence[NDArray[np.float64]], share: float) -> float:
    """Return how many points lie inside an interval that was made without their fold."""
    inside = []
    for i, mine in enumerate(folds):
        others = np.concatenate([errors for j, errors in enumerate(folds) if j != i])
        low, high = factors_of(others, share)
        ratios = 1.0 / (1.0 + mine[~np.isnan(mine)])
        inside.append((ratios >= low) & (ratios <= high))
    return float(np.mean(np.concatenate(inside)))


def even_factors(errors: NDArray[np.float64]) -> Factors:
    """Return factors as far below as above that hold ``LEVEL`` of ``errors``.

    For errors that are too few, and too much alike, to tell one side from the other.
    """
    wide = float(np.exp(np.quantile(np.abs(np.log1p(errors)), LEVEL)))
    return 1.0 / wide, wide


def unseen_speedups(points: Sequence[PublishedPoint], served: Constants) -> NDArray[np.float64]:
    """Return errors of published speedups, each by constants fitted without its curve."""
    curves = curves_of(points)
    errors = []
    for name, curve in curves.items():
        fitted = fit_drafting([point for point in points if point.curve != name], served)
        errors += [point.predicted(fitted) / point.speedup - 1 for point in curve]
    return np.array(errors)
