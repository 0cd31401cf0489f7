"""Positions and draft lengths: prompt, output and drafted tokens must fit both models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specdeploy.core.compat.codes import finding
from specdeploy.core.compat.question import PairQuestion
from specdeploy.core.findings import FactValue, Finding
from specdeploy.core.models import ModelSpec

POSITIONLESS_HEADS: Final = ("medusa", "mtp", "redrafter")


def check_lengths(question: PairQuestion) -> Iterator[Finding]:
    """Check the draft length, and that requests fit with the drafted tokens."""
    yield from _draft_length(question)
    yield from _context(question)


def usable_length(question: PairQuestion) -> int:
    """Return the longest prompt + output: the fewest positions less one step's drafted tokens."""
    return min(_positions(question).values()) - _room(question)


def _room(question: PairQuestion) -> int:
    return 0 if question.method == "none" else question.draft_length


def _positions(question: PairQuestion) -> dict[str, int]:
    positions = {"target": question.target.model.context_length}
    draft = question.draft
    if draft is not None and _has_positions(draft.model):
        positions["draft"] = draft.model.context_length
    return positions


def _has_positions(model: ModelSpec) -> bool:
    """A head that reads the target's hidden states may have none; 0 says so as well."""
    positionless = model.head is not None and model.head.kind in POSITIONLESS_HEADS
    return model.context_length > 0 and not positionless


def _draft_length(question: PairQuestion) -> Iterator[Finding]:
    if question.method == "none":
        return
    length, runtime = question.draft_length, question.runtime
    if length == 0:
        yield finding("draft-length-zero", "the draft length is 0: nothing is drafted")
    limit = None if runtime is None else runtime.max_draft_length
    if runtime is not None and limit is not None and length > limit:
        yield finding(
            "draft-length-too-long",
            f"runtime {runtime.name} drafts at most {limit} tokens per step, not {length}",
            draft_length=length,
            max_draft_length=limit,
        )


def _context(question: PairQuestion) -> Iterator[Finding]:
    positions, usable, asked = _positions(question), usable_length(question), question.max_seq_len
    if usable <= 0 or (asked is not None and asked > usable):
        yield _too_short(question, positions)
    elif asked is None and min(positions.values()) < positions["target"]:
        yield finding(
            "draft-context-shorter",
            f"the draft has {positions['draft']} positions and the target "
            f"{positions['target']}: prompt + output can be {usable} "
            f"with {_room(question)} drafted tokens",
            facts=_facts(question, positions),
        )


def _too_short(question: PairQuestion, positions: dict[str, int]) -> Finding:
    usable, asked = usable_length(question), question.max_seq_len
    limiting = min(positions, key=lambda side: positions[side])
    has = positions[limiting]
    less = f" < {asked}" if asked is not None and asked > has else ""
    wanted = "" if asked is None else f", not {asked}"
    return finding(
        "context-too-short",
        f"the {limiting} has {has} positions (max_position_embeddings){less}; with room for "
        f"{_room(question)} drafted tokens, prompt + output can be {max(0, usable)}{wanted}",
        hint=f"set max_seq_len to at most {usable}, or choose a {limiting} with a longer context"
        if usable > 0
        else "lower draft_length",
        facts=_facts(question, positions),
        limiting=limiting,
    )


def _facts(question: PairQuestion, positions: dict[str, int]) -> dict[str, FactValue]:
    return {
        "usable": usable_length(question),
        "requested": question.max_seq_len,
        "draft_length": _room(question),
        **{f"{side}_positions": count for side, count in positions.items()},
    }
