"""Errors on deployments that a fit has not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from specdeploy.core.speed import Constants
from specdeploy.core.speed.measured import Errors, Measured, errors_of, joined
from speed_fit.rows import Deployments, Key

FOLDS: Final = 5
SEED: Final = 0

Fit = Callable[[Sequence[Measured]], Constants]


def five_folds(groups: Deployments) -> list[list[Key]]:
    """Return the deployments in five parts, shuffled with a fixed seed.

    What one deployment measured is in one part, whole.
    """
    keys = sorted(groups)
    order = np.random.default_rng(SEED).permutation(len(keys))
    return [[keys[i] for i in order[fold::FOLDS]] for fold in range(FOLDS)]


def by_model(groups: Deployments) -> list[list[Key]]:
    """Return the deployments of each model."""
    models = sorted({key[0] for key in groups})
    return [[key for key in sorted(groups) if key[0] == model] for model in models]


def constants_without(
    groups: Deployments, folds: Sequence[Sequence[Key]], fit: Fit
) -> dict[Key, Constants]:
    """Return for every deployment the constants fitted without the fold that it is in."""
    found: dict[Key, Constants] = {}
    for fold in folds:
        fitted = fit([group for key, group in sorted(groups.items()) if key not in fold])
        found |= dict.fromkeys(fold, fitted)
    return found


def errors_by_deployment(
    groups: Deployments, constants: Mapping[Key, Constants]
) -> dict[Key, Errors]:
    """Return the errors of each deployment with its own constants."""
    return {key: errors_of([group], constants[key]) for key, group in sorted(groups.items())}


def errors_by_fold(groups: Deployments, folds: Sequence[Sequence[Key]], fit: Fit) -> list[Errors]:
    """Return the errors of each fold by constants fitted without it."""
    each = errors_by_deployment(groups, constants_without(groups, folds, fit))
    return [joined([each[key] for key in fold]) for fold in folds]
