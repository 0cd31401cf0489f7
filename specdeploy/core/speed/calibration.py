"""Constants fitted to a user's own measurements."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, field_validator

from specdeploy.core.record import Document, Record
from specdeploy.core.speed.constants import BY_NAME, DEFAULT, Constants


class CalibrationErrors(Record):
    """Mean absolute errors relative to what was measured."""

    tpot: float
    ttft: float | None = Field(default=None, description="None: no TTFT was measured.")


class Calibration(Document):
    """What ``specdeploy calibrate`` writes: constants that the measured points moved."""

    values: dict[str, float] = Field(
        description="By the name of the constant; empty where moving any would not help."
    )
    points: int = Field(ge=0, description="Measured points.")
    before: CalibrationErrors = Field(description="Without the calibration.")
    after: CalibrationErrors = Field(description="With it, on points left out of the fit.")
    spread: dict[str, tuple[float, float]] = Field(
        default={},
        description="What ttft and tpot are multiplied with for the ends of their intervals; "
        "empty: as without a calibration.",
    )
    deployments: list[str] = Field(default=[], description="Model, GPU, precision and tp.")
    notes: list[str] = []

    @field_validator("values")
    @classmethod
    def _known_and_in_bounds(cls, values: dict[str, float]) -> dict[str, float]:
        for name, value in values.items():
            constant = BY_NAME.get(name)
            if constant is None:
                raise ValueError(f"{name} is not a constant of the speed model")
            if not constant.low <= value <= constant.high:
                raise ValueError(
                    f"{name} {value:g} is not between {constant.low:g} and {constant.high:g}"
                )
        return values

    def apply(self, constants: Constants = DEFAULT) -> Constants:
        """Return ``constants`` with the calibrated values in place."""
        named = constants.calibrated | frozenset(self.values)
        return replace(
            constants.moved(self.values), calibrated=named, spread=self.spread or constants.spread
        )
