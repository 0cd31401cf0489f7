"""Rows of the embedding and width of the logits: padding is harmless, missing rows are not."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from specdeploy.core.compat.codes import finding
from specdeploy.core.compat.question import Member, PairQuestion, TokenComparison
from specdeploy.core.findings import Finding

FP32_BYTES = 4


def check_vocabulary(question: PairQuestion, tokens: TokenComparison) -> Iterator[Finding]:
    """Compare the rows of both embeddings with the ids in use and with each other."""
    yield from _rows(question.target, "target", question.target, "target")
    draft = question.whole_draft
    if draft is None:
        return
    # The draft reads what the target emits, and the target what the draft proposes.
    yield from _rows(question.target, "target", draft, "draft")
    if tokens in ("equal", "differ"):
        yield from _rows(draft, "draft", question.target, "target")
    yield from _padding(question.target, draft, tokens)
    if question.use_draft_logits:
        yield from _logits(question.target, draft)


def padded_rows(vocab_size: int, tp: int) -> int:
    """Return the rows after padding to a multiple of ``tp``."""
    return ceil(vocab_size / tp) * tp


def special_ids(member: Member) -> set[int]:
    """Return the special ids that the model's configuration states."""
    ids = member.model.special_ids
    single = [i for i in (ids.bos, ids.pad) if i is not None]
    return {*single, *ids.eos, *ids.generation_eos}


def _rows(user: Member, user_side: str, model: Member, side: str) -> Iterator[Finding]:
    """Find tokens of ``user`` for which ``model`` has no row."""
    rows = model.model.vocab_size
    if user is model:
        # Its own special ids are judged apart, with a better remedy.
        beyond = {i for i in _all_ids(user) - special_ids(user) if i >= rows}
    else:
        # Ids without a row of its own are never emitted.
        beyond = {i for i in _all_ids(user) if rows <= i < user.model.vocab_size}
    needed = sorted(beyond & _needed_ids(user))
    rest = sorted(beyond.difference(needed))
    for code, ids in (("ids-beyond-vocabulary", needed), ("added-ids-beyond-vocabulary", rest)):
        if ids:
            yield finding(
                code,
                f"the {side}'s embedding has {rows} rows; {len(ids)} token ids of the "
                f"{user_side} lie beyond, the highest is {ids[-1]}",
                side=side,
                rows=rows,
                ids=len(ids),
                highest_id=ids[-1],
            )


def _all_ids(member: Member) -> set[int]:
    texts = set(member.tokenizer.texts) if member.tokenizer else set()
    return texts | special_ids(member)


def _needed_ids(member: Member) -> set[int]:
    """Ids that ordinary requests use: the base vocabulary, special ids, chat markers."""
    tokenizer = member.tokenizer
    needed = special_ids(member)
    if tokenizer is not None:
        template = tokenizer.chat_template or ""
        needed |= tokenizer.texts.keys() - tokenizer.added_ids
        needed |= {token.id for token in tokenizer.added_tokens if token.text in template}
    return needed


def _padding(target: Member, draft: Member, tokens: TokenComparison) -> Iterator[Finding]:
    ours, theirs = target.model.vocab_size, draft.model.vocab_size
    if ours == theirs or tokens == "differ":
        return
    counts = f"{theirs} rows (draft) and {ours} rows (target), difference {abs(ours - theirs)}"
    if target.tokenizer is None or draft.tokenizer is None:
        yield finding(
            "vocabulary-rows-differ",
            f"the embeddings have {counts}",
            draft_rows=theirs,
            target_rows=ours,
            difference=abs(ours - theirs),
        )
        return
    highest = max(target.tokenizer.highest_id, draft.tokenizer.highest_id)
    used = highest + 1
    yield finding(
        "vocabulary-padding-differs",
        f"the same tokens, padded to {counts}; the highest id is {highest}, so "
        f"{theirs - used} (draft) and {ours - used} (target) rows are unused",
        draft_rows=theirs,
        target_rows=ours,
        difference=abs(ours - theirs),
        highest_id=highest,
        draft_unused_rows=theirs - used,
        target_unused_rows=ours - used,
    )


def _logits(target: Member, draft: Member) -> Iterator[Finding]:
    ours = padded_rows(target.model.vocab_size, target.tp)
    theirs = padded_rows(draft.model.vocab_size, draft.tp)
    if ours == theirs:
        return
    wider = max(ours, theirs)
    yield finding(
        "logits-width-differs",
        f"acceptance by probability needs equal logits: {theirs} (draft) and {ours} (target) "
        f"values, {theirs * FP32_BYTES} and {ours * FP32_BYTES} bytes per token in fp32",
        hint="leave --use-draft-logits out (tokens are then compared instead), or pad the "
        f"narrower embedding and lm_head to {wider} rows",
        draft_width=theirs,
        target_width=ours,
        draft_row_bytes=theirs * FP32_BYTES,
        target_row_bytes=ours * FP32_BYTES,
    )
