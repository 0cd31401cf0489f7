"""Written by scripts/fit_constants; not by hand."""

from __future__ import annotations

from typing import Final

FITTED: Final[dict[str, float]] = {}
# Half-width, in log, of the interval that holds LEVEL of unseen rows.
LEVEL: Final = 0.8
SPREAD: Final[dict[str, dict[str, float]]] = {
    "dense": {"ttft": 0.6, "tpot": 0.25, "speedup": 0.15},
    "experts": {"ttft": 0.9, "tpot": 0.5, "speedup": 0.2},
}
