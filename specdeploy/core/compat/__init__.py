"""Do a target and a draft belong together? One module per concern, one report."""

from __future__ import annotations

from specdeploy.core.compat.codes import CODES, findings_table
from specdeploy.core.compat.doubts import doubts_of
from specdeploy.core.compat.heads import check_heads
from specdeploy.core.compat.lengths import check_lengths, usable_length
from specdeploy.core.compat.models import check_models
from specdeploy.core.compat.parallelism import check_parallelism, usable_tp
from specdeploy.core.compat.question import (
    CHECKED_METHODS,
    DRAFTLESS_METHODS,
    HEAD_METHODS,
    CompatReport,
    Member,
    MemberFacts,
    PairQuestion,
    RuntimeFacts,
    Side,
)
from specdeploy.core.compat.special_ids import check_special_ids
from specdeploy.core.compat.tokens import check_tokens, compare_tokenizers
from specdeploy.core.compat.vocabulary import check_vocabulary

__all__ = [
    "CHECKED_METHODS",
    "CODES",
    "DRAFTLESS_METHODS",
    "HEAD_METHODS",
    "CompatReport",
    "Member",
    "MemberFacts",
    "PairQuestion",
    "RuntimeFacts",
    "Side",
    "check_pair",
    "compare_tokenizers",
    "doubts_of",
    "findings_table",
    "usable_length",
    "usable_tp",
]


def check_pair(question: PairQuestion) -> CompatReport:
    """Answer the question; the verdict is negative when there is a finding of severity error."""
    tokens, findings = check_tokens(question)
    findings = [
        *findings,
        *check_vocabulary(question, tokens),
        *check_special_ids(question),
        *check_lengths(question),
        *check_parallelism(question),
        *check_heads(question),
        *check_models(question),
    ]
    blocked = any(found.severity == "error" for found in findings)
    return CompatReport(
        verdict="incompatible" if blocked else "compatible",
        tokens=tokens,
        method=question.method,
        runtime=None if question.runtime is None else question.runtime.name,
        findings=findings,
        target=_facts(question.target),
        draft=None if question.draft is None else _facts(question.draft),
    )


def _facts(member: Member) -> MemberFacts:
    tokenizer = None if member.tokenizer is None else member.tokenizer.facts
    return MemberFacts(path=member.path, model=member.model, tokenizer=tokenizer, tp=member.tp)
