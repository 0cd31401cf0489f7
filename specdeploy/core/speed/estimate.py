"""How fast a pair serves a load, with and without speculation."""

from __future__ import annotations

import math

from pydantic import Field

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.record import Record
from specdeploy.core.served import ServedPair
from specdeploy.core.speed.constants import DEFAULT, Constants
from specdeploy.core.speed.fitted import LEVEL, SPREAD
from specdeploy.core.speed.grid import serve_both_ways
from specdeploy.core.speed.load import Load, Terms, as_array
from specdeploy.core.speed.rates import rates_of
from specdeploy.core.speed.serving import Serving
from specdeploy.core.speed.steady import Steady


class Interval(Record):
    """Where ``level`` of measurements are expected to lie."""

    low: float
    high: float
    level: float


class Speed(Record):
    """What one way of serving reaches at steady concurrency."""

    ttft_ms: float = Field(description="Mean time to the first token, queueing included.")
    tpot_ms: float = Field(description="Mean time per later token.")
    tokens_per_s: float = Field(description="Output tokens of all requests together.")
    tokens_per_s_per_request: float = Field(description="1000 / tpot_ms.")
    step_ms: float = Field(description="One pass of the target, drafting included.")
    tokens_per_step: float = Field(description="Tokens emitted per request and target pass.")


class SpeedEstimate(Record):
    """Predicted speed with and without speculation; with no draft tokens the two are equal."""

    baseline: Speed
    speculative: Speed
    speedup: float = Field(description="Ratio of tokens_per_s_per_request.")
    bound_by: str = Field(description="The term that takes most of a speculative step.")
    terms: dict[str, float] = Field(description="Milliseconds of one speculative step by term.")
    baseline_terms: dict[str, float] = Field(description="The same without speculation.")
    intervals: dict[str, Interval] = Field(description="By number, such as baseline.tpot_ms.")
    sources: dict[str, str] = Field(
        description="By number: calibrated, fitted, physics or assumed, the weakest that it uses."
    )
    assumptions: list[str]


def estimate_speed(
    pair: ServedPair,
    gpu: GpuSpec,
    load: Load,
    *,
    draft_length: int,
    tokens_per_step: float,
    constants: Constants = DEFAULT,
) -> SpeedEstimate:
    """Return the predicted speed of one deployment.

    Args:
        pair: The models as they are served.
        gpu: The GPU that all of them run on.
        load: Plain numbers; ``resident`` holds what memory allows.
        draft_length: Draft tokens per step; 0 is serving without speculation.
        tokens_per_step: Tokens emitted per request and target pass, the target's own included.
        constants: ``Calibration.apply()`` gives those of the user's own machine.
    """
    serving = Serving.of(pair, gpu, constants)
    ways = serve_both_ways(
        serving, load, draft_length=draft_length, tokens_per_step=tokens_per_step
    )
    emitted = tokens_per_step if draft_length else 1.0
    plain = _speed(ways.baseline, load, emitted=1.0)
    fast = _speed(ways.speculative, load, emitted=emitted)
    terms = _milliseconds(ways.speculative.step)
    speedup = fast.tokens_per_s_per_request / plain.tokens_per_s_per_request
    kind = (
        "experts" if pair.target.spec.breakdown and pair.target.spec.breakdown.experts else "dense"
    )
    return SpeedEstimate(
        baseline=plain,
        speculative=fast,
        speedup=speedup,
        bound_by=max(terms, key=terms.__getitem__),
        terms=terms,
        baseline_terms=_milliseconds(ways.baseline.step),
        intervals=_intervals(plain, fast, speedup, spread=SPREAD[kind]),
        sources={},
        assumptions=_assumptions(gpu),
    )


def _speed(way: Steady, load: Load, *, emitted: float) -> Speed:
    ttft, tpot = float(way.ttft), float(way.tpot)
    output, batch = float(as_array(load.output_len)), float(as_array(load.batch))
    return Speed(
        ttft_ms=1e3 * ttft,
        tpot_ms=1e3 * tpot,
        tokens_per_s=batch * output / (ttft + (output - 1) * tpot),
        tokens_per_s_per_request=1 / tpot,
        step_ms=1e3 * float(way.step.total),
        tokens_per_step=emitted,
    )


def _milliseconds(terms: Terms) -> dict[str, float]:
    return {name: 1e3 * float(seconds) for name, seconds in terms.by_name().items()}


def _intervals(
    plain: Speed, fast: Speed, speedup: float, *, spread: dict[str, float]
) -> dict[str, Interval]:
    found = {"speedup": _interval(speedup, spread["speedup"])}
    for name, speed in (("baseline", plain), ("speculative", fast)):
        found[f"{name}.ttft_ms"] = _interval(speed.ttft_ms, spread["ttft"])
        found[f"{name}.tpot_ms"] = _interval(speed.tpot_ms, spread["tpot"])
    return found


def _interval(value: float, spread: float) -> Interval:
    wide = math.exp(spread)
    return Interval(low=value / wide, high=value * wide, level=LEVEL)


def _assumptions(gpu: GpuSpec) -> list[str]:
    near = rates_of(gpu).assumed_from
    return [] if near is None else [f"{gpu.name} has the rates of {near} (assumed)"]
