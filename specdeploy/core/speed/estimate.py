"""How fast a pair serves a load, with and without speculation."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import Field

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.record import Record
from specdeploy.core.served import ServedPair
from specdeploy.core.speed.constants import DEFAULT, Constants
from specdeploy.core.speed.fitted import LEVEL, SPREAD
from specdeploy.core.speed.grid import serve_both_ways
from specdeploy.core.speed.intervals import Factors
from specdeploy.core.speed.load import Load, Terms, as_array
from specdeploy.core.speed.provenance import assumptions_of, sources_of
from specdeploy.core.speed.serving import Serving
from specdeploy.core.speed.steady import Steady
from specdeploy.units import MS_PER_S


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
        description="The weakest by number: measured table, calibrated, fitted, physics, assumed."
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
    plain = _speed(ways.baseline, load, emitted=1.0)
    fast = _speed(ways.speculative, load, emitted=tokens_per_step if draft_length else 1.0)
    terms = _milliseconds(ways.speculative.step)
    speedup = fast.tokens_per_s_per_request / plain.tokens_per_s_per_request
    return SpeedEstimate(
        baseline=plain,
        speculative=fast,
        speedup=speedup,
        bound_by=max(terms, key=terms.__getitem__),
        terms=terms,
        baseline_terms=_milliseconds(ways.baseline.step),
        intervals=_intervals(plain, fast, speedup, spread=_spread(serving)),
        sources=sources_of(serving, gpu, drafting=draft_length > 0),
        assumptions=assumptions_of(serving, gpu, drafting=draft_length > 0),
    )


def _speed(way: Steady, load: Load, *, emitted: float) -> Speed:
    ttft, tpot = float(way.ttft), float(way.tpot)
    output, batch = float(as_array(load.output_len)), float(as_array(load.batch))
    return Speed(
        ttft_ms=MS_PER_S * ttft,
        tpot_ms=MS_PER_S * tpot,
        tokens_per_s=batch * output / (ttft + (output - 1) * tpot),
        tokens_per_s_per_request=1 / tpot,
        step_ms=MS_PER_S * float(way.step.total),
        tokens_per_step=emitted,
    )


def _milliseconds(terms: Terms) -> dict[str, float]:
    return {name: MS_PER_S * float(seconds) for name, seconds in terms.by_name().items()}


def _spread(serving: Serving) -> Mapping[str, Factors]:
    kind = "experts" if serving.target.work.expert_bytes else "dense"
    return {**SPREAD[kind], **(serving.constants.spread or {})}


def _intervals(
    plain: Speed, fast: Speed, speedup: float, *, spread: Mapping[str, Factors]
) -> dict[str, Interval]:
    """Return the interval of every predicted number.

    The times per token of speculation are off by what those without it are, and by what the
    speedup is; the two are taken as independent. Without draft tokens only the first is left.
    """
    same = fast == plain
    gain = (1.0, 1.0) if same else spread["speedup"]
    both = spread["tpot"] if same else _combined(spread["tpot"], gain)
    found = {"speedup": _interval(speedup, gain)}
    for name, speed, tpot in (("baseline", plain, spread["tpot"]), ("speculative", fast, both)):
        # What takes longer makes fewer tokens.
        rate = (1 / tpot[1], 1 / tpot[0])
        found[f"{name}.ttft_ms"] = _interval(speed.ttft_ms, spread["ttft"])
        found[f"{name}.tpot_ms"] = _interval(speed.tpot_ms, tpot)
        found[f"{name}.step_ms"] = _interval(speed.step_ms, tpot)
        found[f"{name}.tokens_per_s"] = _interval(speed.tokens_per_s, rate)
        per_request = speed.tokens_per_s_per_request
        found[f"{name}.tokens_per_s_per_request"] = _interval(per_request, rate)
    return found


def _combined(one: Factors, other: Factors) -> Factors:
    low, high = (math.hypot(math.log(one[end]), math.log(other[end])) for end in (0, 1))
    return math.exp(-low), math.exp(high)


def _interval(value: float, factors: Factors) -> Interval:
    return Interval(low=value * factors[0], high=value * factors[1], level=LEVEL)
