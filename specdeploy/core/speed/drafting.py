"""What drafting costs, by kind of draft."""

from __future__ import annotations

from typing import Final

from numpy.typing import ArrayLike

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.models import DraftHeadSpec, ModelSpec, ParameterBreakdown
from specdeploy.core.served import ServedPair
from specdeploy.core.speed.constants import DEFAULT, Constants
from specdeploy.core.speed.load import Array, as_array
from specdeploy.core.speed.serving import Serving
from specdeploy.core.speed.steps import Machine, decode_terms

# Heads that propose every position in one pass, and have a tree of them verified.
TREE_HEADS: Final = frozenset({"medusa", "redrafter"})


def draft_seconds(
    pair: ServedPair,
    gpu: GpuSpec,
    *,
    requests: ArrayLike,
    draft_length: ArrayLike,
    context: ArrayLike,
    constants: Constants = DEFAULT,
) -> Array:
    """Return the seconds of drafting ``draft_length`` tokens for each of ``requests``; 0 for none.

    A draft model or a one-layer head (EAGLE, MTP) runs once per token, a Medusa head once;
    prompt lookup costs the host a little per request. What speculation costs the target's own
    runtime once a step is part of it.
    """
    serving = Serving.of(pair, gpu, constants)
    return drafting(serving, as_array(requests), as_array(draft_length), as_array(context))


def drafting(serving: Serving, requests: Array, draft_length: Array, context: Array) -> Array:
    """Return the same for a pair that is on its GPUs already."""
    constants, used = serving.constants, as_array(draft_length > 0)
    once: Array = used * constants.speculation_s
    if serving.draft is None:
        return once + used * (constants.ngram_s * requests)
    passes = used if is_tree(serving.pair) else draft_length
    return once + passes * _one_pass(serving.draft, requests, context)


def verified_positions(pair: ServedPair, draft_length: Array, constants: Constants) -> Array:
    """Return the mean positions per request that the target computes in one step.

    ``k + 1`` for a chain; a tree has ``tree_width`` candidates for each of the ``k``; prompt
    lookup drafts nothing where it finds no match.
    """
    if pair.draft is None:
        return draft_length * constants.ngram_match + 1.0
    return draft_length * (constants.tree_width if is_tree(pair) else 1.0) + 1.0


def is_tree(pair: ServedPair) -> bool:
    """Tell whether the draft proposes a tree in one pass."""
    head = pair.draft.spec.head if pair.draft is not None else None
    return head is not None and head.kind in TREE_HEADS


def mtp_head(target: ModelSpec) -> ModelSpec:
    """Return a target's own multi-token-prediction module as a draft of one layer.

    The module is one layer of the target's mean width with the target's embedding and LM head;
    its parameters are those that the checkpoint holds for it.
    """
    parts, count = target.breakdown, target.mtp_parameters
    experts = attention = 0
    if parts is not None:
        attention = min(parts.attention // target.layers, count)
        routed = parts.experts / max(parts.experts + parts.mlp, 1)
        experts = round((count - attention) * routed)
    active = target.active_parameters or target.parameters
    share = _active_share(parts, target.parameters, active)
    inside = ParameterBreakdown(
        embedding=0,
        lm_head=0,
        attention=attention,
        mlp=count - attention - experts,
        experts=experts,
        other=0,
    )
    return target.evolve(
        name=f"{target.name} MTP",
        layers=1,
        parameters=count,
        active_parameters=count - experts + round(share * experts),
        mtp_parameters=0,
        weight_bytes=None,
        breakdown=inside,
        kv_layers=[group.evolve(layers=1) for group in target.kv_layers[:1]],
        head=DraftHeadSpec(kind="mtp", target_hidden_size=target.hidden_size),
    )


def _active_share(parts: ParameterBreakdown | None, total: int, active: int) -> float:
    if parts is None or not parts.experts:
        return 1.0
    return max(active - (total - parts.experts), 0) / parts.experts


def _one_pass(draft: Machine, requests: Array, context: Array) -> Array:
    terms = decode_terms(draft, requests, as_array(1.0), context)
    # The draft's steps are launched by the step that they belong to.
    return terms.total - terms.scheduler + draft.constants.draft_step_s
