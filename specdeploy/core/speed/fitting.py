"""Bounded robust least squares for constants of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from specdeploy.core.speed.constants import BY_NAME, Constants
from specdeploy.core.speed.load import Array
from specdeploy.core.speed.measured import Measured, errors_of

# Beyond this relative error a point pulls no harder than at it.
HUBER: Final = 0.25
_NUDGE: Final = 1e-4
_ROUNDS: Final = 30
_SETTLED: Final = 1e-4
_DAMPING: Final = 1e-3
_MOST_DAMPING: Final = 1e6
_ENDS: Final = ("low", "high")

Residuals = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a fit weighs what it sees.

    Attributes:
        names: The constants that may move.
        first_token_weight: Of an error of TTFT beside one of TPOT.
        pull: Weight of a constant's distance from its start, in standard deviations of the
            table, beside one point's error.
    """

    names: Sequence[str]
    first_token_weight: float = 0.3
    pull: float = 0.5


def fit(groups: Sequence[Measured], start: Constants, options: FitOptions) -> Constants:
    """Return ``start`` with the values of ``options.names`` that predict ``groups`` best.

    Levenberg-Marquardt on the relative errors with Huber weights, inside the table's bounds, and
    drawn to ``start`` by ``options.pull``. Nothing is random.
    """

    def residuals(constants: Constants) -> Array:
        errors = errors_of(groups, constants)
        weighted = np.concatenate([errors.tpot, options.first_token_weight * errors.ttft])
        return softened(weighted[~np.isnan(weighted)])

    return fit_residuals(residuals, start, options.names, pull=options.pull)


def fit_residuals(
    residuals: Callable[[Constants], Array],
    start: Constants,
    names: Sequence[str],
    *,
    pull: float,
) -> Constants:
    """Return ``start`` with the values of ``names`` that make the sum of squares least."""
    low, high = (np.array([getattr(BY_NAME[name], end) for name in names]) for end in _ENDS)
    # The bounds of the table are two standard deviations either side.
    size = (high - low) / 4
    first = np.array([start.values()[name] for name in names]) / size

    def moved(scaled: Array) -> Constants:
        return start.moved(dict(zip(names, (scaled * size).tolist(), strict=True)))

    def all_residuals(scaled: Array) -> Array:
        return np.concatenate([residuals(moved(scaled)), pull * (scaled - first)])

    return moved(_least_squares(all_residuals, first, (low / size, high / size)))


def softened(errors: Array) -> Array:
    """Return errors whose squares are twice Huber's loss."""
    large = np.abs(errors)
    bent = np.sqrt(np.maximum(2 * HUBER * large - HUBER**2, 0.0))
    return np.where(large <= HUBER, errors, np.sign(errors) * bent)


def _least_squares(residuals: Residuals, start: Array, bounds: tuple[Array, Array]) -> Array:
    low, high = bounds
    point, damping = np.clip(start, low, high), _DAMPING
    errors = residuals(point)
    for _ in range(_ROUNDS):
        slopes = _slopes(residuals, point, errors)
        found = _downhill(residuals, slopes, (point, errors), (low, high), damping)
        if found is None:
            break
        moved, tried, damping = found
        gained = float(errors @ errors - tried @ tried)
        point, errors = moved, tried
        if gained < _SETTLED * float(errors @ errors):
            break
    return point


def _downhill(
    residuals: Residuals,
    slopes: Array,
    here: tuple[Array, Array],
    bounds: tuple[Array, Array],
    damping: float,
) -> tuple[Array, Array, float] | None:
    """Return a better point, its residuals and the next damping; None when there is none."""
    point, errors = here
    while damping < _MOST_DAMPING:
        step = _step(slopes, errors, (point, *bounds), damping)
        moved = np.clip(point + step, *bounds)
        tried = residuals(moved)
        if float(tried @ tried) < float(errors @ errors):
            return moved, tried, damping / 5
        damping *= 8
    return None


def _step(slopes: Array, errors: Array, where: tuple[Array, Array, Array], damping: float) -> Array:
    """Return the damped Gauss-Newton step of the constants that are free to move."""
    point, low, high = where
    gradient = slopes.T @ errors
    free = ~(((point <= low) & (gradient > 0)) | ((point >= high) & (gradient < 0)))
    step = np.zeros_like(point)
    normal = slopes[:, free].T @ slopes[:, free]
    normal = normal + damping * np.diag(np.diag(normal) + 1e-9)
    step[free] = -np.linalg.solve(normal, gradient[free])
    return step


def _slopes(residuals: Residuals, point: Array, errors: Array) -> Array:
    columns = []
    for i in range(len(point)):
        moved = point.copy()
        moved[i] += _NUDGE
        columns.append((residuals(moved) - errors) / _NUDGE)
    return np.stack(columns, axis=1)
