"""What drafting costs beside a target step, and what a request costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specdeploy.core.acceptance import tokens_per_step
from specdeploy.core.hardware import GpuSpec
from specdeploy.core.precision import AUTO, resolve_precision
from specdeploy.core.served import ServedModel, ServedPair
from specdeploy.core.speed import Constants, Load, draft_seconds, step_seconds
from specdeploy.core.speed.load import as_array
from specdeploy.core.tuner.search import Point
from specdeploy.core.tuner.space import spread
from specdeploy.core.tuning import CostComparison, DraftCosts, DraftStepCost, RequestCost
from specdeploy.errors import ConfigError
from specdeploy.units import MS_PER_S

# What a good pair reaches; above it the draft has to be dear to be in the way.
JUDGED_AT: Final = 0.7
LARGE_DRAFT: Final = 0.05
_SECONDS_PER_HOUR: Final = 3600


def draft_costs(
    pair: ServedPair, gpu: GpuSpec, load: Load, *, draft_length: int, constants: Constants
) -> DraftCosts | None:
    """Return the cost of a draft step at tp 1 and at the widths in use; None without a draft.

    ``load`` holds plain numbers.
    """
    draft = pair.draft
    if draft is None:
        return None
    widths = sorted({1, draft.tp, pair.target.tp})
    context = float(as_array(load.input_len) + as_array(load.output_len) / 2)
    place = _Place(pair, gpu, float(as_array(load.batch)), context, constants)
    by_tp = [_step_cost(place, served) for tp in widths if (served := _at(draft, tp))]
    ratio = draft.spec.parameters / pair.target.spec.parameters
    used = next(cost for cost in by_tp if cost.tp == draft.tp)
    return DraftCosts(
        parameter_ratio=ratio,
        by_tp=by_tp,
        warning=_warning(ratio, used, by_tp, draft_length=draft_length),
    )


def cost_comparison(
    plain: Point | None, speculative: Point | None, *, price: float | None
) -> CostComparison:
    """Return what a request costs on the best server of either kind."""
    return CostComparison(
        price_per_gpu_hour=price,
        classic=_request_cost(plain, price),
        speculative=_request_cost(speculative, price),
    )


def outweighs_gain(cost_ratio: float, draft_length: int) -> bool:
    """Tell whether drafting takes more than an acceptance of 0.7 gives back.

    ``k c > tokens per step - 1``: the draft's steps cost more target steps than they save.
    """
    return draft_length * cost_ratio > tokens_per_step([JUDGED_AT], draft_length) - 1


def _request_cost(point: Point | None, price: float | None) -> RequestCost | None:
    if point is None:
        return None
    seconds = point.gpu_s_per_request
    money = None if price is None else price * seconds / _SECONDS_PER_HOUR
    return RequestCost(gpu_s=seconds, money=money)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a draft step is looked at."""

    pair: ServedPair
    gpu: GpuSpec
    requests: float
    context: float
    constants: Constants


def _at(draft: ServedModel, tp: int) -> ServedModel | None:
    """Return the same draft over ``tp`` GPUs; None where its heads cannot be spread so."""
    if tp == draft.tp:
        return draft
    own = resolve_precision(AUTO, draft.spec) == draft.precision
    precision = AUTO if own else draft.precision.name
    try:
        return spread(draft.spec, precision=precision, kv_dtype=draft.kv_dtype, tp=tp)
    except ConfigError:
        return None


def _step_cost(place: _Place, draft: ServedModel) -> DraftStepCost:
    alone = ServedPair(place.pair.target, draft, place.pair.method)
    one, two = (
        float(
            draft_seconds(
                alone,
                place.gpu,
                requests=place.requests,
                draft_length=length,
                context=place.context,
                constants=place.constants,
            )
        )
        for length in (1, 2)
    )
    target = step_seconds(
        place.pair.target,
        place.gpu,
        requests=place.requests,
        tokens_per_request=1,
        context=place.context,
        constants=place.constants,
    )
    # One more draft token, without what speculation costs once a step.
    step = two - one
    ratio = step / float(target.total)
    return DraftStepCost(tp=draft.tp, step_ms=step * MS_PER_S, cost_ratio=ratio)


def _warning(
    ratio: float, used: DraftStepCost, by_tp: list[DraftStepCost], *, draft_length: int
) -> str | None:
    advice = []
    cheapest = min(by_tp, key=lambda cost: cost.step_ms)
    if cheapest.tp < used.tp:
        advice.append(f"serve the draft with tp {cheapest.tp} ({cheapest.step_ms:.2f} ms a step)")
    if ratio > LARGE_DRAFT:
        advice.append(f"take a smaller draft (this one has {ratio:.1%} of the target's parameters)")
    cost = (
        f"a draft step at tp {used.tp} takes {used.step_ms:.2f} ms, {used.cost_ratio:.2f} of a "
        "target step"
    )
    if outweighs_gain(used.cost_ratio, draft_length):
        gain = tokens_per_step([JUDGED_AT], draft_length) - 1
        cost += (
            f": {draft_length} of them cost more than the {gain:.2f} tokens that an acceptance of "
            f"{JUDGED_AT:g} gives"
        )
    elif not advice:
        return None
    return f"{cost}; {', or '.join(advice)}" if advice else cost
