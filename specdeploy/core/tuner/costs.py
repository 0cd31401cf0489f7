"""What drafting costs beside a target step, and what a request costs."""

from __future__ import annotations

from typing import Final

from specdeploy.core.acceptance import tokens_per_step
from specdeploy.core.served import ServedPair
from specdeploy.core.speed import draft_seconds, step_seconds
from specdeploy.core.tuner.question import Question
from specdeploy.core.tuner.search import Point
from specdeploy.core.tuner.space import Variant, spread
from specdeploy.core.tuning import CostComparison, DraftCosts, DraftStepCost, RequestCost
from specdeploy.errors import ConfigError
from specdeploy.units import MS_PER_S

# What a good pair reaches; above it the draft has to be dear to be in the way.
JUDGED_AT: Final = 0.7
LARGE_DRAFT: Final = 0.05
_SECONDS_PER_HOUR: Final = 3600


def draft_costs(question: Question, variant: Variant, *, draft_length: int) -> DraftCosts | None:
    """Return the cost of a draft step at tp 1 and at the widths in use; None without a draft."""
    draft = variant.pair.draft
    if draft is None:
        return None
    widths = sorted({1, draft.tp, variant.pair.target.tp})
    by_tp = [cost for tp in widths if (cost := _step_cost(question, variant, tp))]
    ratio = draft.spec.parameters / variant.pair.target.spec.parameters
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


def _step_cost(question: Question, variant: Variant, tp: int) -> DraftStepCost | None:
    pair, load = variant.pair, question.workload
    assert pair.draft is not None  # noqa: S101 - the caller asked
    try:
        draft = spread(
            pair.draft.spec,
            precision=variant.candidate.precision,
            kv_dtype=pair.draft.kv_dtype,
            tp=tp,
        )
    except ConfigError:  # the heads cannot be spread so
        return None
    context = load.prompt.mean + load.answer.mean / 2
    alone = ServedPair(pair.target, draft, pair.method)
    one, two = (
        float(
            draft_seconds(
                alone,
                question.gpu,
                requests=load.planned,
                draft_length=length,
                context=context,
                constants=question.constants,
            )
        )
        for length in (1, 2)
    )
    target = step_seconds(
        pair.target,
        question.gpu,
        requests=load.planned,
        tokens_per_request=1,
        context=context,
        constants=question.constants,
    )
    # One more draft token, without what speculation costs once a step.
    step = two - one
    return DraftStepCost(tp=tp, step_ms=step * MS_PER_S, cost_ratio=step / float(target.total))


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
