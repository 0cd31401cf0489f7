"""The speed of TensorRT-LLM serving with and without speculative decoding.

A roofline per pass, a closed loop of clients round it, and one table of constants. The
equations are in docs/speed.md.
"""

from specdeploy.core.speed.calibration import Calibration
from specdeploy.core.speed.constants import DEFAULT, TABLE, Constant, Constants
from specdeploy.core.speed.drafting import draft_seconds, mtp_head
from specdeploy.core.speed.estimate import (
    Interval,
    Speed,
    SpeedEstimate,
    estimate_speed,
)
from specdeploy.core.speed.grid import SpeedGrid, speed_grid
from specdeploy.core.speed.load import Load, Terms
from specdeploy.core.speed.steps import prefill_seconds, step_seconds

__all__ = [
    "DEFAULT",
    "TABLE",
    "Calibration",
    "Constant",
    "Constants",
    "Interval",
    "Load",
    "Speed",
    "SpeedEstimate",
    "SpeedGrid",
    "Terms",
    "draft_seconds",
    "estimate_speed",
    "mtp_head",
    "prefill_seconds",
    "speed_grid",
    "step_seconds",
]
