"""Constants fitted to a user's own measurements."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from specdeploy.core.record import Document
from specdeploy.core.speed.constants import DEFAULT, Constants


class Calibration(Document):
    """What ``specdeploy calibrate`` writes: constants that the measured points moved."""

    values: dict[str, float] = Field(description="By the name of the constant; no others moved.")
    points: int = Field(ge=0, description="Measured points that were used.")
    error_before: float | None = Field(default=None, description="Mean absolute error of TPOT.")
    error_after: float | None = Field(
        default=None, description="The same on points left out of the fit."
    )
    notes: list[str] = []

    def apply(self, constants: Constants = DEFAULT) -> Constants:
        """Return ``constants`` with the calibrated values in place."""
        named = constants.calibrated | frozenset(self.values)
        return replace(constants.moved(self.values), calibrated=named)
