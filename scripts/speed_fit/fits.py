"""The three fits that make the constants, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.speed import TABLE, Constants
from specdeploy.core.speed.fitting import FitOptions, fit, fit_residuals, softened
from specdeploy.core.speed.measured import Measured
from speed_fit.published import PublishedPoint

PULL: Final = 0.5
FIRST_TOKEN_WEIGHT: Final = 0.3
# A published speedup weighs as much as this many measured rows.
_CURVE_PULL: Final = 0.05
EXPERTS: Final = tuple(
    constant.name for constant in TABLE if constant.name.startswith(("expert_", "latent_"))
)
DRAFTING: Final = ("draft_step_s", "speculation_s")
DENSE: Final = tuple(
    constant.name
    for constant in TABLE
    if constant.source == "fitted" and constant.name not in {*EXPERTS, *DRAFTING}
)
PRIORS: Final = Constants()


def fit_dense(groups: Sequence[Measured], start: Constants = PRIORS) -> Constants:
    """Return the constants that dense models say something about."""
    return fit(groups, start, FitOptions(DENSE, FIRST_TOKEN_WEIGHT, PULL))


def fit_experts(groups: Sequence[Measured], dense: Constants) -> Constants:
    """Return ``dense`` with the constants of routed experts fitted."""
    return fit(groups, dense, FitOptions(EXPERTS, FIRST_TOKEN_WEIGHT, PULL))


def fit_drafting(points: Sequence[PublishedPoint], served: Constants) -> Constants:
    """Return ``served`` with the constants of drafting fitted to published speedups."""
    known = [point for point in points if point.possible]

    def residuals(constants: Constants) -> NDArray[np.float64]:
        errors = [point.predicted(constants) / point.speedup - 1 for point in known]
        return softened(np.array(errors))

    return fit_residuals(residuals, served, DRAFTING, pull=_CURVE_PULL)
