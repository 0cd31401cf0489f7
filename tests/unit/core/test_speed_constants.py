"""The table of constants."""

from __future__ import annotations

import pytest

from specdeploy.core.speed import DEFAULT, TABLE, Calibration, Constants
from specdeploy.core.speed.calibration import CalibrationErrors
from specdeploy.core.speed.constants import BY_NAME
from specdeploy.core.speed.fitted import FITTED

NONE = CalibrationErrors(tpot=0.1)


def calibration(**values: float) -> Calibration:
    return Calibration(values=values, points=12, before=NONE, after=NONE)


@pytest.mark.parametrize("constant", TABLE, ids=lambda constant: constant.name)
def test_every_constant_lies_between_its_bounds_and_says_where_it_is_from(
    constant: object,
) -> None:
    known = BY_NAME[constant.name]  # type: ignore[attr-defined]
    assert known.low <= known.prior <= known.high
    assert known.low <= known.value <= known.high
    assert known.meaning
    assert known.unit
    assert known.origin


def test_fitted_constants_are_those_of_the_fit_and_no_others() -> None:
    assert {each.name for each in TABLE if each.source == "fitted"} == FITTED.keys()
    assert DEFAULT.values() == {each.name: each.value for each in TABLE}


def test_priors_do_not_know_the_fit() -> None:
    assert Constants().values() == {each.name: each.prior for each in TABLE}


def test_a_calibration_replaces_what_it_names_and_marks_it() -> None:
    own = calibration(layer_s=1e-5).apply()
    assert own.layer_s == 1e-5
    assert own.source("layer_s") == "calibrated"
    assert own.source("step_s") == "fitted"
    assert own.step_s == DEFAULT.step_s
    assert own.spread is None


def test_calibrations_add_up() -> None:
    both = calibration(step_s=0.0).apply(calibration(layer_s=1e-5).apply())
    assert both.calibrated == {"layer_s", "step_s"}


@pytest.mark.parametrize(
    ("values", "told"),
    [({"luck": 1.0}, "luck is not a constant"), ({"layer_s": 1.0}, "is not between")],
)
def test_a_calibration_that_makes_no_sense_is_refused(values: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        calibration(**values)
