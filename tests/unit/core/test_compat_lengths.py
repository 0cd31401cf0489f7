"""Prompt, output and drafted tokens must fit both models."""

from __future__ import annotations

import pytest
from pairs import REFERENCE, a_head, a_member, a_model, a_question, ask, codes, found

from specdeploy.core.compat import CompatReport, Member, usable_length


def positions(side: str, count: int, **changes: object) -> Member:
    model = a_model(context_length=count, parameters=len(side) * 10**6, **changes)
    return a_member(side, model=model)


def llama2(**changes: object) -> CompatReport:
    target, draft = positions("target", 4096), positions("draft", 2048)
    return ask(target=target, draft=draft, **changes)


def test_the_drafts_positions_less_the_drafted_tokens_limit_a_request() -> None:
    report = llama2(max_seq_len=4096, draft_length=4)
    finding = found(report, "context-too-short")
    assert report.verdict == "incompatible"
    assert finding.facts["usable"] == 2044
    assert "2048" in finding.message
    assert "4096" in finding.message
    assert "2044" in (finding.hint or "")


def test_the_usable_length_itself_fits_and_one_more_does_not() -> None:
    assert "context-too-short" not in codes(llama2(max_seq_len=2044, draft_length=4))
    assert "context-too-short" in codes(llama2(max_seq_len=2045, draft_length=4))


def test_a_shorter_draft_warns_when_no_length_is_asked() -> None:
    report = llama2(draft_length=4)
    assert found(report, "draft-context-shorter").facts["usable"] == 2044
    assert report.verdict == "compatible"


def test_a_longer_draft_is_not_mentioned() -> None:
    assert codes(ask(draft=positions("draft", 8192))) == {"tokenizer-missing"}


def test_a_head_with_few_positions_limits_its_target() -> None:
    head = positions("draft", 2048, head=a_head())
    report = ask(target=positions("target", 131_072), draft=head, method="eagle3", max_seq_len=8192)
    finding = found(report, "context-too-short")
    assert "2048 positions (max_position_embeddings) < 8192" in finding.message
    assert finding.facts["limiting"] == "draft"


@pytest.mark.parametrize("declared", [0, 2048])
def test_a_medusa_head_has_no_positions_of_its_own(declared: int) -> None:
    head = positions("draft", declared, head=a_head("medusa", draft_vocab_size=None))
    target = positions("target", 131_072)
    assert usable_length(a_question(target=target, draft=head, draft_length=3)) == 131_069


def test_prompt_lookup_needs_room_in_the_target() -> None:
    report = ask(draft=None, method="ngram", draft_length=4, max_seq_len=2048)
    assert found(report, "context-too-short").facts["usable"] == 2044


def test_plain_decoding_needs_no_room() -> None:
    report = ask(draft=None, method="none", draft_length=4, max_seq_len=2048)
    assert report.findings == []


def test_a_context_shorter_than_the_draft_length_leaves_nothing() -> None:
    report = ask(draft=positions("draft", 4), draft_length=4)
    assert found(report, "context-too-short").hint == "lower draft_length"


def test_draft_length_0_is_a_warning() -> None:
    assert "draft-length-zero" in codes(ask(draft_length=0), "warning")


def test_the_runtime_limits_the_draft_length() -> None:
    assert "draft-length-too-long" in codes(ask(draft_length=17, runtime=REFERENCE), "error")
    assert "draft-length-too-long" not in codes(ask(draft_length=16, runtime=REFERENCE))
