"""Do both models mean the same by an id? Maps, rules and encodings are compared, never sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from specdeploy.core.compat.codes import finding
from specdeploy.core.compat.question import PairQuestion, TokenComparison
from specdeploy.core.findings import Finding
from specdeploy.core.tokenizers import TokenizerSpec

LISTED: Final = 20
RESERVED: Final = re.compile(r"reserved|unused|placeholder|extra|dummy", re.IGNORECASE)


def check_tokens(question: PairQuestion) -> tuple[TokenComparison, list[Finding]]:
    """Compare the tokenizers of the pair; a head works in the target's tokens."""
    draft = question.whole_draft
    if draft is None:
        return "not-needed", []
    if question.target.tokenizer is None or draft.tokenizer is None:
        return "not-compared", list(_missing(question))
    findings = compare_tokenizers(question.target.tokenizer, draft.tokenizer)
    differ = any(found.severity == "error" for found in findings)
    return ("differ" if differ else "equal"), findings


def compare_tokenizers(target: TokenizerSpec, draft: TokenizerSpec) -> list[Finding]:
    """Return what differs between two tokenizers; encodings only where the ids agree."""
    findings = [*_disagreeing_files(target, draft), *_compare_maps(target, draft)]
    if not any(found.severity == "error" for found in findings):
        findings += _compare_behaviour(target, draft)
    return findings


def _missing(question: PairQuestion) -> Iterator[Finding]:
    for side, member in question.members:
        if member.tokenizer is None:
            yield finding(
                "tokenizer-missing",
                f"the {side} directory has no tokenizer files: tokens were not compared",
                severity="warning" if member.weights is None else "error",
                side=side,
            )


def _disagreeing_files(target: TokenizerSpec, draft: TokenizerSpec) -> Iterator[Finding]:
    for side, tokenizer in (("target", target), ("draft", draft)):
        if tokenizer.conflicts:
            yield finding(
                "tokenizer-files-disagree",
                f"the {side}'s files give two ids to {_quoted(tokenizer.conflicts)}; "
                "tokenizer.json was taken",
                side=side,
                tokens=tokenizer.conflicts[:LISTED],
            )


def _compare_maps(target: TokenizerSpec, draft: TokenizerSpec) -> Iterator[Finding]:
    if target.tokens == draft.tokens:
        return
    shared = target.texts.keys() & draft.texts.keys()
    differing = sorted(i for i in shared if target.texts[i] != draft.texts[i])
    single = sorted(target.texts.keys() ^ draft.texts.keys())
    added = [i for i in differing if _is_added(i, target, draft)]
    yield from _base_differences(
        (target, draft), [i for i in differing if not _is_added(i, target, draft)], len(added)
    )
    if any(not _is_added(i, target, draft) for i in single):
        yield _sizes_differ(target, draft)
    yield from _added_differences(target, draft, added)
    yield from _added_missing(target, draft, [i for i in single if _is_added(i, target, draft)])


def _is_added(token_id: int, target: TokenizerSpec, draft: TokenizerSpec) -> bool:
    """Whether the id is an added token on every side that has it."""
    return all(
        token_id in tokenizer.added_ids
        for tokenizer in (target, draft)
        if token_id in tokenizer.texts
    )


def _base_differences(
    pair: tuple[TokenizerSpec, TokenizerSpec], ids: list[int], special: int
) -> Iterator[Finding]:
    target, draft = pair
    if not ids:
        return
    first = ids[0]
    if target.kind != draft.kind:
        yield finding(
            "tokenizer-types-differ",
            f"the target's tokenizer is {target.kind}, the draft's {draft.kind}",
            target_kind=target.kind,
            draft_kind=draft.kind,
        )
    yield finding(
        "tokenizer-ids-differ",
        f"{len(ids)} ids stand for different tokens; the first is {first}: "
        f"{target.texts[first]!r} in the target, {draft.texts[first]!r} in the draft",
        differing_ids=len(ids),
        differing_special_ids=special,
        first_id=first,
        target_text=target.texts[first],
        draft_text=draft.texts[first],
    )


def _sizes_differ(target: TokenizerSpec, draft: TokenizerSpec) -> Finding:
    ours, theirs = target.facts, draft.facts
    return finding(
        "tokenizer-sizes-differ",
        f"the target's tokenizer ({ours.kind}) has {ours.size} tokens, "
        f"the draft's ({theirs.kind}) {theirs.size}",
        target_size=ours.size,
        draft_size=theirs.size,
        target_kind=ours.kind,
        draft_kind=theirs.kind,
    )


def _added_differences(
    target: TokenizerSpec, draft: TokenizerSpec, ids: list[int]
) -> Iterator[Finding]:
    renamed: list[int] = []
    changed: list[int] = []
    for i in ids:
        ours, theirs = target.texts[i], draft.texts[i]
        (renamed if _is_renamed(ours, theirs, target, draft) else changed).append(i)
    for code, listed in (("added-tokens-differ", changed), ("added-tokens-renamed", renamed)):
        if listed:
            first = listed[0]
            yield finding(
                code,
                f"{len(listed)} added tokens differ; the first is id {first}: "
                f"{target.texts[first]!r} in the target, {draft.texts[first]!r} in the draft",
                ids=listed[:LISTED],
                differing_ids=len(listed),
                target_texts=[target.texts[i] for i in listed[:LISTED]],
                draft_texts=[draft.texts[i] for i in listed[:LISTED]],
            )


def _is_renamed(ours: str, theirs: str, target: TokenizerSpec, draft: TokenizerSpec) -> bool:
    """Whether a reserved slot got a name, and neither text means another id elsewhere."""
    reserved = RESERVED.search(ours) or RESERVED.search(theirs)
    return bool(reserved) and ours not in draft.tokens and theirs not in target.tokens


def _added_missing(
    target: TokenizerSpec, draft: TokenizerSpec, ids: list[int]
) -> Iterator[Finding]:
    both = target.tokens.keys() & draft.tokens.keys()
    moved = [i for i in ids if _text(i, target, draft) in both]
    only_target = [i for i in ids if i in target.texts and target.texts[i] not in both]
    only_draft = [i for i in ids if i in draft.texts and draft.texts[i] not in both]
    if moved:
        texts = [_text(i, target, draft) for i in moved]
        yield finding(
            "added-tokens-differ",
            f"{_quoted(texts)} have other ids on the two sides",
            ids=moved[:LISTED],
            differing_ids=len(moved),
        )
    if only_target or only_draft:
        yield finding(
            "added-tokens-missing",
            f"{len(only_target)} added tokens only the target has, {len(only_draft)} only the "
            f"draft: {_quoted(_text(i, target, draft) for i in [*only_target, *only_draft])}",
            only_target=only_target[:LISTED],
            only_draft=only_draft[:LISTED],
        )


def _text(token_id: int, target: TokenizerSpec, draft: TokenizerSpec) -> str:
    return target.texts[token_id] if token_id in target.texts else draft.texts[token_id]


def _compare_behaviour(target: TokenizerSpec, draft: TokenizerSpec) -> Iterator[Finding]:
    rules = [
        name
        for name in ("kind", "normalizer", "pre_tokenizer")
        if getattr(target, name) != getattr(draft, name)
    ]
    differing = _differing(target.encodings, draft.encodings)
    if differing:
        yield _encodings_differ(target, draft, differing, rules)
        return
    if rules:
        yield finding(
            "tokenizer-rules-differ",
            f"{' and '.join(rules)} differ, and every probe text gives the same ids",
            rules=rules,
        )
    yield from _smaller_differences(target, draft)


def _smaller_differences(target: TokenizerSpec, draft: TokenizerSpec) -> Iterator[Finding]:
    handled = _differing(target.added_encodings, draft.added_encodings)
    if handled:
        yield finding(
            "added-tokens-handling-differs",
            f"{_quoted(handled)} are recognised differently inside a text",
            tokens=handled[:LISTED],
        )
    if target.wrapped != draft.wrapped:
        yield finding(
            "prompt-framing-differs",
            "the tokenizers put different special tokens around a prompt",
            target_ids=target.wrapped or [],
            draft_ids=draft.wrapped or [],
        )
    if target.decoder != draft.decoder:
        yield finding("tokenizer-decoders-differ", "the decoders differ")


def _differing(ours: dict[str, list[int] | None], theirs: dict[str, list[int] | None]) -> list[str]:
    return [text for text, ids in ours.items() if text in theirs and theirs[text] != ids]


def _encodings_differ(
    target: TokenizerSpec, draft: TokenizerSpec, texts: list[str], rules: list[str]
) -> Finding:
    first = texts[0]
    cause = f" ({' and '.join(rules)} differ)" if rules else ""
    return finding(
        "tokenizer-encodings-differ",
        f"{len(texts)} of {len(target.encodings)} probe texts are split differently{cause}; "
        f"the first is {first!r}",
        differing_probes=len(texts),
        probes=len(target.encodings),
        rules=rules,
        first_text=first,
        target_ids=target.encodings[first] or [],
        draft_ids=draft.encodings[first] or [],
    )


def _quoted(texts: Iterable[str]) -> str:
    listed = list(texts)
    more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    return ", ".join(repr(text) for text in listed[:LISTED]) + more
