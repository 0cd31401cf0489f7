"""Fitting a handful of constants to a user's own points, and not more than they bear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from specdeploy.core.speed.calibration import Calibration, CalibrationErrors
from specdeploy.core.speed.constants import DEFAULT, Constants
from specdeploy.core.speed.fitting import FitOptions, fit
from specdeploy.core.speed.intervals import factors_of
from specdeploy.core.speed.measured import Errors, Measured, errors_of, joined, mean_absolute
from specdeploy.core.speed.steps import BLACKWELL

FOLDS: Final = 5
FEWEST: Final = 4
ENOUGH_FOR_INTERVALS: Final = 10
# From little trust in the points to much; the first that is best wins.
PULLS: Final = (1.0, 0.4, 0.15)
FIRST_TOKEN_WEIGHT: Final = 0.3
# What a calibration has to take off the error on left-out points before it is believed.
_WORTH: Final = 0.97
# More than the level of an interval, for what so few points cannot tell.
_SHARE: Final = 0.9
_ALWAYS: Final = (
    *("cache_efficiency", "layer_s", "step_s", "request_s", "prompt_s"),
    *("first_token_s", "interference", "queue_base", "queue_slope"),
)


def calibrate(groups: Sequence[Measured], start: Constants = DEFAULT) -> Calibration:
    """Return constants fitted to ``groups``, or none where that would not help.

    Each of five parts of the points is predicted by a fit to the others, with more and less pull
    to ``start``. The pull with the least error is taken if it beats no fit at all and makes
    neither TTFT nor TPOT worse by more than a standard error; else nothing moves.
    """
    names = names_for(groups)
    count = sum(map(len, groups))
    before = errors_of(groups, start)
    tried = [(pull, _left_out(groups, start, names, pull)) for pull in _pulls(count)]
    worth = [
        (_score(errors), pull, errors)
        for pull, errors in tried
        if _score(errors) < _WORTH * _score(before) and _no_worse(errors, before)
    ]
    if not worth:
        return Calibration(values={}, points=count, before=_told(before), after=_told(before))
    _, pull, errors = min(worth, key=lambda each: each[0])
    found = fit(groups, start, FitOptions(names, FIRST_TOKEN_WEIGHT, pull))
    return Calibration(
        values={name: found.values()[name] for name in names},
        points=count,
        before=_told(before),
        after=_told(errors),
        spread=_spread(errors),
    )


def names_for(groups: Sequence[Measured]) -> tuple[str, ...]:
    """Return the constants that the points of ``groups`` say something about."""
    machines = [group.serving.target for group in groups]
    names = set(_ALWAYS)
    for machine in machines:
        names |= {f"{machine.model.precision.unit.replace('int8', 'fp8')}_efficiency"}
        old = machine.sm < BLACKWELL
        names |= {"read_efficiency" if old else "blackwell_read_efficiency"}
        names |= {"all_reduce_s", "link_efficiency"} if machine.model.tp > 1 else set()
        names |= {"expert_efficiency", "expert_layer_s"} if machine.work.expert_bytes else set()
    return tuple(sorted(names))


def _pulls(count: int) -> tuple[float, ...]:
    return PULLS if count >= FEWEST else ()


def _left_out(
    groups: Sequence[Measured], start: Constants, names: tuple[str, ...], pull: float
) -> Errors:
    """Return errors on points that the fit did not see, in order of fold."""
    options = FitOptions(names, FIRST_TOKEN_WEIGHT, pull)
    begins = np.cumsum([0, *map(len, groups)])
    parts = []
    for fold in range(FOLDS):
        halves = [
            _split(group, (np.arange(len(group)) + begin) % FOLDS == fold)
            for group, begin in zip(groups, begins, strict=False)
        ]
        seen = [half.seen for half in halves if len(half.seen)]
        unseen = [half.unseen for half in halves if len(half.unseen)]
        if unseen:
            parts.append(errors_of(unseen, fit(seen, start, options)))
    return joined(parts)


@dataclass(frozen=True, slots=True)
class _Halves:
    seen: Measured
    unseen: Measured


def _split(group: Measured, chosen: NDArray[np.bool_]) -> _Halves:
    return _Halves(group.only(np.flatnonzero(~chosen)), group.only(np.flatnonzero(chosen)))


def _score(errors: Errors) -> float:
    """Return the mean error in log, where predicting half is as wrong as predicting twice.

    A relative error would reward a fit for predicting too little.
    """
    tpot, first = (mean_absolute(np.log1p(each)) for each in (errors.tpot, errors.ttft))
    return tpot + (0.0 if np.isnan(first) else FIRST_TOKEN_WEIGHT * first)


def _no_worse(errors: Errors, before: Errors) -> bool:
    """Tell whether neither number got worse by more than its points can tell."""
    pairs = ((errors.tpot, before.tpot), (errors.ttft, before.ttft))
    return all(
        mean_absolute(after) <= mean_absolute(old) + _standard_error(old)
        for after, old in pairs
        if not np.isnan(old).all()
    )


def _standard_error(errors: NDArray[np.float64]) -> float:
    known = np.abs(errors[~np.isnan(errors)])
    return float(np.std(known) / np.sqrt(len(known)))


def _spread(errors: Errors) -> dict[str, tuple[float, float]]:
    numbers = {"tpot": errors.tpot, "ttft": errors.ttft}
    return {
        name: factors_of(each, _SHARE)
        for name, each in numbers.items()
        if np.sum(~np.isnan(each)) >= ENOUGH_FOR_INTERVALS
    }


def _told(errors: Errors) -> CalibrationErrors:
    first = errors.ttft_mean
    return CalibrationErrors(tpot=errors.tpot_mean, ttft=None if np.isnan(first) else first)
