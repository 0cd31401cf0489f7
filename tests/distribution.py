"""A chi-square test of drawn counts against exact probabilities, with its own power."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeVar

import torch

Cell = TypeVar("Cell")

FALSE_ALARM: Final = 1e-4
POWER: Final = 0.99
TV_BIAS: Final = 0.02
LEAST_DRAWS: Final = 20_000


def draws_needed(cells: int) -> int:
    """Draws that find a total-variation bias of 2 % with 99 % power at a false alarm of 1e-4.

    Over all distributions at total variation ``d`` from ``p``, the chi-square distance
    ``sum((q - p)^2 / p)`` is at least ``(sum |q - p|)^2 / sum p = 4 d^2`` (Cauchy-Schwarz), so
    ``n`` draws have a non-centrality of at least ``4 n d^2``.
    """
    freedom = cells - 1
    critical = critical_value(freedom)
    draws = LEAST_DRAWS
    while _power(freedom, critical, 4 * draws * TV_BIAS**2) < POWER:
        draws += 500
    return draws


def critical_value(freedom: int) -> float:
    """The chi-square value that is exceeded with probability ``FALSE_ALARM``."""
    low, high = 0.0, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _exceeds(freedom, middle) > FALSE_ALARM else (low, middle)
    return high


def statistic(counts: Mapping[Cell, int], expected: Mapping[Cell, float]) -> float:
    """Pearson's statistic; infinite when something impossible was drawn."""
    if set(counts) - {cell for cell, p in expected.items() if p > 0}:
        return math.inf
    draws = sum(counts.values())
    return sum(
        (counts.get(cell, 0) - draws * p) ** 2 / (draws * p) for cell, p in expected.items() if p
    )


def _exceeds(freedom: float, value: float) -> float:
    half = torch.tensor([freedom / 2, value / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def _power(freedom: int, critical: float, noncentrality: float) -> float:
    """Chance that a non-central chi-square value exceeds ``critical`` (Poisson mixture)."""
    mean = noncentrality / 2
    weight, total = math.exp(-mean), 0.0
    for j in range(int(mean + 10 * math.sqrt(mean)) + 20):
        total += weight * _exceeds(freedom + 2 * j, critical)
        weight *= mean / (j + 1)
    return total
