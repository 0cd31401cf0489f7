"""Draft heads: do they fit the target's hidden states and rows?"""

from __future__ import annotations

import pytest
from pairs import a_head, a_member, a_model, ask, codes, found

from specdeploy.core.compat import CompatReport
from specdeploy.core.models import DraftHeadSpec


def with_head(head: DraftHeadSpec, *, method: str = "eagle3", **draft: object) -> CompatReport:
    """Check a target of hidden size 256 and 512 rows with a head."""
    return ask(draft=a_member("draft", model=a_model(head=head, **draft)), method=method)


def test_a_reduced_output_with_both_mappings_is_compatible() -> None:
    report = with_head(a_head(draft_vocab_size=128))
    assert report.verdict == "compatible"
    assert report.findings == []
    assert report.tokens == "not-needed"


@pytest.mark.parametrize("lacking", ["has_draft_to_target_map", "has_target_to_draft_map"])
def test_a_reduced_output_without_a_mapping_is_an_error(lacking: str) -> None:
    report = with_head(a_head(**{lacking: False}))
    assert codes(report, "error") == {"head-mapping-missing"}


def test_a_reduced_output_without_its_lm_head_is_an_error() -> None:
    assert codes(with_head(a_head(has_lm_head=False)), "error") == {"head-lm-head-missing"}


def test_a_whole_output_may_share_the_targets_lm_head() -> None:
    whole = a_head(
        draft_vocab_size=None,
        has_lm_head=False,
        has_draft_to_target_map=False,
        has_target_to_draft_map=False,
    )
    assert with_head(whole).findings == []


def test_a_head_without_tensors_says_what_was_not_checked() -> None:
    unseen = a_head(
        has_lm_head=None,
        has_embedding=None,
        has_draft_to_target_map=None,
        has_target_to_draft_map=None,
        fusion_input_size=None,
    )
    report = with_head(unseen)
    assert codes(report) == {"head-tensors-unseen"}
    assert report.verdict == "compatible"


def test_another_hidden_size_without_an_embedding_of_its_own_is_an_error() -> None:
    report = with_head(a_head(has_embedding=False), hidden_size=192)
    assert codes(report, "error") == {"head-hidden-size-differs"}


def test_an_own_embedding_needs_a_projection_of_three_hidden_states() -> None:
    report = with_head(a_head(has_embedding=True, fusion_input_size=3 * 192), hidden_size=192)
    finding = found(report, "head-hidden-size-differs")
    assert finding.facts["head_hidden_size"] == 192
    assert finding.facts["target_hidden_size"] == 256
    assert finding.facts["wanted_fusion_input_size"] == 768
    assert "3 x 256 = 768" in finding.message


def test_an_own_embedding_and_the_right_projection_fit() -> None:
    head = a_head(has_embedding=True, fusion_input_size=768)
    assert "head-hidden-size-differs" not in codes(with_head(head, hidden_size=192))


def test_the_same_hidden_size_with_another_projection_is_an_error() -> None:
    assert "head-hidden-size-differs" in codes(with_head(a_head(fusion_input_size=512)))


def test_another_hidden_size_without_tensors_is_an_error() -> None:
    head = a_head(has_embedding=None, fusion_input_size=None)
    assert "head-hidden-size-differs" in codes(with_head(head, hidden_size=192), "error")


def test_an_eagle_head_needs_the_targets_hidden_size() -> None:
    head = a_head("eagle", draft_vocab_size=None, fusion_input_size=512)
    assert with_head(head, method="eagle").findings == []
    report = with_head(head, method="eagle", hidden_size=192)
    assert codes(report, "error") == {"head-hidden-size-differs"}


def test_a_head_for_another_vocabulary_is_an_error() -> None:
    report = with_head(a_head(), vocab_size=1024)
    assert found(report, "head-vocabulary-differs").facts["head_rows"] == 1024


def test_more_output_rows_than_the_vocabulary_are_an_error() -> None:
    assert "head-vocabulary-differs" in codes(with_head(a_head(draft_vocab_size=513)), "error")


def test_a_head_cannot_be_a_whole_draft() -> None:
    finding = found(with_head(a_head(), method="draft_target"), "draft-is-a-head")
    assert finding.hint == "use --method eagle3"


def test_a_whole_model_cannot_be_a_head() -> None:
    assert "draft-is-not-a-head" in codes(ask(method="eagle3"), "error")


def test_a_head_of_another_kind_is_an_error() -> None:
    assert "head-kind-differs" in codes(with_head(a_head("medusa"), method="eagle3"), "error")


def test_mtp_without_a_draft_needs_modules_in_the_target() -> None:
    assert codes(ask(draft=None, method="mtp"), "error") == {"mtp-modules-missing"}
    target = a_member("target", model=a_model(mtp_parameters=1000))
    assert ask(target=target, draft=None, method="mtp").findings == []
