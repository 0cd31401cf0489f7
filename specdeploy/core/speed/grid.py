"""TTFT and TPOT of many points at once, for the tuner."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.served import ServedPair
from specdeploy.core.speed.constants import DEFAULT, Constants
from specdeploy.core.speed.load import Array, Load, as_array
from specdeploy.core.speed.serving import Serving
from specdeploy.core.speed.steady import Steady, serve_steadily


@dataclass(frozen=True, slots=True)
class SpeedGrid:
    """Milliseconds for every point of a grid; the arrays have the grid's shape."""

    baseline_ttft_ms: Array
    baseline_tpot_ms: Array
    ttft_ms: Array
    tpot_ms: Array


def speed_grid(
    pair: ServedPair,
    gpu: GpuSpec,
    load: Load,
    *,
    draft_length: ArrayLike,
    tokens_per_step: ArrayLike,
    constants: Constants = DEFAULT,
) -> SpeedGrid:
    """Return TTFT and TPOT for every combination.

    ``draft_length``, ``tokens_per_step`` and the fields of ``load`` broadcast with each other;
    the less a value varies along an axis, the less is computed.
    """
    ways = serve_both_ways(
        Serving.of(pair, gpu, constants),
        load,
        draft_length=draft_length,
        tokens_per_step=tokens_per_step,
    )
    plain, fast = ways.baseline, ways.speculative
    shape = np.broadcast_shapes(plain.tpot.shape, fast.tpot.shape)
    each = (plain.ttft, plain.tpot, fast.ttft, fast.tpot)
    return SpeedGrid(*(np.broadcast_to(1e3 * seconds, shape) for seconds in each))


@dataclass(frozen=True, slots=True)
class Ways:
    """A load served without and with speculation."""

    baseline: Steady
    speculative: Steady


def serve_both_ways(
    serving: Serving, load: Load, *, draft_length: ArrayLike, tokens_per_step: ArrayLike
) -> Ways:
    """Return both; where ``draft_length`` is 0 the two are equal to the last bit."""
    resident = load.resident if load.resident_plain is None else load.resident_plain
    plain = replace(load, resident=resident)
    length = as_array(draft_length)
    emitted = np.where(length > 0, as_array(tokens_per_step), 1.0)
    return Ways(
        serve_steadily(serving, plain, draft_length=as_array(0), tokens_per_step=as_array(1)),
        serve_steadily(serving, load, draft_length=length, tokens_per_step=emitted),
    )
