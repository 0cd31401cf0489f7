"""Draft heads (EAGLE, EAGLE-3, Medusa, MTP): do they fit this target's hidden states and rows?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specdeploy.core.compat.codes import finding
from specdeploy.core.compat.question import HEAD_METHODS, Member, PairQuestion
from specdeploy.core.findings import Finding
from specdeploy.core.models import DraftHeadSpec, ModelSpec

# EAGLE-3 reads the hidden states of three layers of the target side by side.
EAGLE3_LAYERS: Final = 3


def check_heads(question: PairQuestion) -> Iterator[Finding]:
    """Check the draft's kind against the method, and a head's tensors against the target."""
    draft = question.draft
    if draft is None:
        yield from _own_modules(question)
        return
    yield from _kind(question.method, draft)
    head = draft.model.head
    if head is not None:
        yield from _hidden_size(question.target.model, draft.model, head)
        yield from _vocabulary(question.target.model, draft.model, head)
        yield from _tensors(draft.model, head)


def _own_modules(question: PairQuestion) -> Iterator[Finding]:
    if question.method == "mtp" and question.target.model.mtp_parameters == 0:
        yield finding("mtp-modules-missing", "the target has no multi-token-prediction modules")


def _kind(method: str, draft: Member) -> Iterator[Finding]:
    head = draft.model.head
    if head is None:
        if method in HEAD_METHODS:
            yield finding(
                "draft-is-not-a-head",
                f"method {method} needs a draft head, and the draft is a whole model "
                f"({draft.model.architecture})",
                method=method,
            )
    elif method not in HEAD_METHODS:
        yield finding(
            "draft-is-a-head",
            f"the draft is a {head.kind} head and cannot run on its own",
            hint=f"use --method {head.kind}" if head.kind in HEAD_METHODS else None,
            method=method,
            head=head.kind,
        )
    elif head.kind not in (method, "other"):
        yield finding(
            "head-kind-differs",
            f"the draft is a {head.kind} head, and the method is {method}",
            method=method,
            head=head.kind,
        )


def _hidden_size(target: ModelSpec, draft: ModelSpec, head: DraftHeadSpec) -> Iterator[Finding]:
    ours, theirs = target.hidden_size, draft.hidden_size
    fusion = head.fusion_input_size
    wanted = EAGLE3_LAYERS * ours
    if head.kind == "eagle3" and fusion is not None:
        fits = fusion == wanted and (ours == theirs or head.has_embedding is not False)
    else:
        fits = theirs == ours or (
            head.kind == "eagle3" and head.target_hidden_size == ours and bool(head.has_embedding)
        )
    if fits:
        return
    projection = "" if fusion is None else f"; its projection reads {fusion} values"
    needed = f", and needs {EAGLE3_LAYERS} x {ours} = {wanted}" if head.kind == "eagle3" else ""
    yield finding(
        "head-hidden-size-differs",
        f"the head has hidden size {theirs} and the target {ours}{projection}{needed}",
        target_hidden_size=ours,
        head_hidden_size=theirs,
        fusion_input_size=fusion,
        wanted_fusion_input_size=wanted if head.kind == "eagle3" else None,
        own_embedding=head.has_embedding,
    )


def _vocabulary(target: ModelSpec, draft: ModelSpec, head: DraftHeadSpec) -> Iterator[Finding]:
    reduced = head.draft_vocab_size
    if draft.vocab_size != target.vocab_size:
        problem = f"the head is made for {draft.vocab_size} rows, the target has"
    elif reduced is not None and reduced > draft.vocab_size:
        problem = f"the head's own output has {reduced} rows, its vocabulary"
    else:
        return
    yield finding(
        "head-vocabulary-differs",
        f"{problem} {target.vocab_size}",
        head_rows=draft.vocab_size,
        target_rows=target.vocab_size,
        draft_vocab_size=reduced,
    )


def _tensors(draft: ModelSpec, head: DraftHeadSpec) -> Iterator[Finding]:
    reduced = head.draft_vocab_size
    if reduced is None or reduced >= draft.vocab_size:
        return
    maps = {"d2t": head.has_draft_to_target_map, "t2d": head.has_target_to_draft_map}
    missing = [name for name, there in maps.items() if there is False]
    if missing:
        yield finding(
            "head-mapping-missing",
            f"the head proposes {reduced} of {draft.vocab_size} ids and lacks "
            f"{' and '.join(missing)}",
            missing=missing,
            draft_vocab_size=reduced,
            vocab_size=draft.vocab_size,
        )
    if head.has_lm_head is False:
        yield finding(
            "head-lm-head-missing",
            f"the head's output has {reduced} rows of its own, and there is no lm_head",
            draft_vocab_size=reduced,
        )
    if None in (head.has_lm_head, *maps.values()):
        yield finding(
            "head-tensors-unseen",
            "the head's d2t, t2d and lm_head were not checked: there are no tensors to look at",
        )
