"""From errors on unseen points to the ends of an interval."""

from __future__ import annotations

import numpy as np

from specdeploy.core.speed.load import Array

Factors = tuple[float, float]


def factors_of(errors: Array, share: float) -> Factors:
    """Return what to multiply a prediction with so that ``share`` of ``errors`` lie inside.

    ``errors`` are predicted / measured - 1 of unseen points, nan where nothing was measured; as
    many lie above as below. The prediction itself is always inside.
    """
    ratios = 1.0 / (1.0 + errors[~np.isnan(errors)])
    low, high = np.quantile(ratios, [(1 - share) / 2, (1 + share) / 2])
    return min(float(low), 1.0), max(float(high), 1.0)
