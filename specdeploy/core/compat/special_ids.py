"""BOS, EOS, PAD and chat templates: who ends an answer, and in which format it was asked."""

from __future__ import annotations

from collections.abc import Iterator

from specdeploy.core.compat.codes import finding
from specdeploy.core.compat.question import Member, PairQuestion
from specdeploy.core.compat.vocabulary import special_ids
from specdeploy.core.findings import Finding


def check_special_ids(question: PairQuestion) -> Iterator[Finding]:
    """Check each model's special ids, and those of the pair against each other."""
    for side, member in question.members:
        yield from _in_range(side, member)
    yield from _ending(question.target)
    draft = question.whole_draft
    if draft is not None:
        yield from _compare_ids(question.target, draft)
        yield from _compare_templates(question.target, draft)


def _eos(member: Member) -> list[int]:
    """Every end id, in the order that generation uses; generation_config.json wins."""
    named = _token_id(member, "eos_token")
    fallback = [] if named is None else [named]
    return list(dict.fromkeys(member.model.special_ids.ending or fallback))


def _pad(member: Member) -> int | None:
    pad = member.model.special_ids.pad
    return _token_id(member, "pad_token") if pad is None else pad


def _token_id(member: Member, role: str) -> int | None:
    tokenizer = member.tokenizer
    if tokenizer is None:
        return None
    name = tokenizer.eos_token if role == "eos_token" else tokenizer.pad_token
    return None if name is None else tokenizer.tokens.get(name)


def _turn_end(member: Member, eos: list[int]) -> int:
    """The end id that the chat template writes most often; else the tokenizer's, else the first.

    A template that says ``eos_token`` writes the tokenizer's own.
    """
    tokenizer = member.tokenizer
    if tokenizer is None:
        return eos[0]
    template = tokenizer.chat_template or ""
    own = _token_id(member, "eos_token")
    uses = {i: template.count(tokenizer.texts.get(i, "\0")) for i in eos}
    if own in uses:
        uses[own] += template.count("eos_token")
    most = max(uses.values())
    if own in uses and uses[own] == most:
        return own
    return next(i for i in eos if uses[i] == most)


def _in_range(side: str, member: Member) -> Iterator[Finding]:
    rows = member.model.vocab_size
    beyond = sorted(i for i in special_ids(member) if not 0 <= i < rows)
    if beyond:
        yield finding(
            "special-id-out-of-range",
            f"the {side}'s special ids {beyond} are outside its {rows} embedding rows",
            side=side,
            ids=beyond,
            rows=rows,
        )


def _ending(target: Member) -> Iterator[Finding]:
    """Tell who ends an answer; servers read the configuration alone, not the tokenizer."""
    eos = list(dict.fromkeys(target.model.special_ids.ending))
    if not eos:
        yield _no_end(target)
        return
    end = _turn_end(target, eos)
    stop_ids = [i for i in eos if i != end]
    if stop_ids:
        yield finding(
            "eos-list",
            f"end_id is {end}, the id that ends a turn; {stop_ids} stop too",
            end_id=end,
            stop_ids=stop_ids,
        )
    if _pad(target) is None:
        yield finding(
            "pad-missing", f"the target has no pad id; {end}, the end id, is used", pad_id=end
        )


def _no_end(target: Member) -> Finding:
    named = _token_id(target, "eos_token")
    known = "" if named is None else f"; its tokenizer ends with {named}"
    return finding(
        "eos-missing",
        f"neither config.json nor generation_config.json names the target's end id{known}",
        tokenizer_eos=named,
    )


def _compare_ids(target: Member, draft: Member) -> Iterator[Finding]:
    ours, theirs = target.model.special_ids, draft.model.special_ids
    if None not in (ours.bos, theirs.bos) and ours.bos != theirs.bos:
        yield finding(
            "bos-differs",
            f"BOS is {ours.bos} in the target and {theirs.bos} in the draft",
            target=ours.bos,
            draft=theirs.bos,
        )
    eos, draft_eos = _eos(target), _eos(draft)
    if set(eos) != set(draft_eos):
        yield finding(
            "eos-differs",
            f"the target ends with {sorted(eos)}, the draft with {sorted(draft_eos)}",
            target=sorted(eos),
            draft=sorted(draft_eos),
        )
    if _pad(target) != _pad(draft):
        yield finding(
            "pad-differs",
            f"PAD is {_pad(target)} in the target and {_pad(draft)} in the draft",
            target=_pad(target),
            draft=_pad(draft),
        )


def _compare_templates(target: Member, draft: Member) -> Iterator[Finding]:
    if target.tokenizer is None or draft.tokenizer is None:
        return
    ours, theirs = target.tokenizer.chat_template, draft.tokenizer.chat_template
    if ours is not None and theirs is not None:
        if ours.strip() != theirs.strip():
            yield finding("chat-template-differs", "the chat templates differ")
    elif ours != theirs:
        has, lacks = ("draft", "target") if ours is None else ("target", "draft")
        yield finding(
            "chat-template-missing",
            f"the {has} has a chat template and the {lacks} has none",
            side=lacks,
        )
