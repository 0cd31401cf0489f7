"""What drafting costs, by kind of draft."""

from __future__ import annotations

from numpy.typing import ArrayLike

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.served import ServedModel, ServedPair
from specdeploy.core.speed.constants import DEFAULT, Constants
from specdeploy.core.speed.load import Array, as_array
from specdeploy.core.speed.steps import decode_terms, machine_of

# Heads that propose every position in one pass, and verify a tree of them.
TREE_HEADS = frozenset({"medusa", "redrafter"})


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
    prompt lookup costs the host a little per request.
    """
    many, length = as_array(requests), as_array(draft_length)
    used = length > 0
    per_step: Array = used * constants.speculation_s
    if pair.draft is None:
        return per_step + used * (constants.ngram_s * many)
    passes = as_array(used) if is_tree(pair) else length
    return per_step + passes * _draft_pass(pair.draft, gpu, (many, as_array(context)), constants)


def verified_positions(pair: ServedPair, draft_length: ArrayLike, constants: Constants) -> Array:
    """Return the positions per request that the target computes in one step.

    ``k + 1`` for a chain; a tree has ``tree_width`` candidates for each of the ``k``.
    """
    width = constants.tree_width if is_tree(pair) else 1.0
    return as_array(draft_length) * width + 1.0


def is_tree(pair: ServedPair) -> bool:
    """Tell whether the draft proposes a tree in one pass."""
    head = pair.draft.spec.head if pair.draft is not None else None
    return head is not None and head.kind in TREE_HEADS


def _draft_pass(
    draft: ServedModel, gpu: GpuSpec, load: tuple[Array, Array], constants: Constants
) -> Array:
    many, context = load
    terms = decode_terms(machine_of(draft, gpu, constants), many, as_array(1.0), context)
    return terms.total - terms.scheduler + constants.draft_step_s
