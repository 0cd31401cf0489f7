"""``speculative_config``: spelling, schedule and lossy settings, release by release."""

from __future__ import annotations

from typing import Any

import pytest
from llmapi_plans import asked_of, planned, refusal, served, tuned, with_settings
from llmapi_signatures import accept

from specdeploy.core.deployment import Deployment, SamplingDefaults
from specdeploy.runtimes.llmapi_config import graph_sizes

OLD, LOWER, NEWEST = "1.0.0", "1.2.0", "1.4.0rc4"
MIXED = "1.3.0rc14"
SAMPLED = SamplingDefaults(temperature=0.8)
TIERS = ((1, 2, 4), (3, 10, 2), (11, 64, 0))


def speculative(version: str, method: str, deployment: Deployment | None = None) -> dict[str, Any]:
    config = planned(version, deployment, method=method).arguments["speculative_config"]
    assert isinstance(config, dict)
    return config


@pytest.mark.parametrize(
    ("version", "tag", "path"),
    [
        (OLD, "DraftTarget", "speculative_model_dir"),
        ("1.1.0", "DraftTarget", "speculative_model_dir"),
        (LOWER, "DraftTarget", "speculative_model"),
        (MIXED, "Draft_Target", "speculative_model"),
        (NEWEST, "Draft_Target", "speculative_model"),
    ],
)
def test_a_draft_model_is_written_as_the_release_spells_it(
    version: str, tag: str, path: str
) -> None:
    config = speculative(version, "draft_target")
    config.pop("allow_advanced_sampling", None)
    assert config == {"decoding_type": tag, "max_draft_len": 4, path: "/models/draft"}


@pytest.mark.parametrize("version", [OLD, LOWER, MIXED])
def test_the_length_of_mtp_is_written_twice_where_one_key_overwrites_the_other(
    version: str,
) -> None:
    config = speculative(version, "mtp")
    assert config["max_draft_len"] == config["num_nextn_predict_layers"] == 4


def test_the_length_of_mtp_is_written_once_where_the_old_key_is_deprecated() -> None:
    assert speculative(NEWEST, "mtp") == {"decoding_type": "MTP", "max_draft_len": 4}


def test_prompt_lookup_says_its_size_whose_default_is_refused() -> None:
    assert speculative(LOWER, "ngram") == {
        "decoding_type": "NGram",
        "max_draft_len": 4,
        "max_matching_ngram_size": 3,
    }


def test_the_librarys_own_choice_takes_no_length_and_is_told() -> None:
    plan = planned(LOWER, method="auto")
    assert plan.arguments["speculative_config"] == {"decoding_type": "AUTO"}
    assert any("AUTO chooses: NGram with length 5" in note for note in plan.notes)


def test_eagle_has_the_tag_and_the_switches_of_its_release() -> None:
    old, new = speculative(LOWER, "eagle3"), speculative(NEWEST, "eagle3")
    assert (old["decoding_type"], old["eagle3_one_model"]) == ("Eagle", True)
    assert new["decoding_type"] == "Eagle3"
    assert "eagle3_one_model" not in new


def test_sampled_requests_of_a_drafter_inside_the_engine_need_the_switch_where_there_is_one() -> (
    None
):
    assert speculative(LOWER, "eagle3")["allow_advanced_sampling"] is True
    assert speculative(MIXED, "draft_target")["allow_advanced_sampling"] is True
    for version, method in ((LOWER, "draft_target"), (OLD, "eagle3"), (NEWEST, "eagle3")):
        assert "allow_advanced_sampling" not in speculative(version, method)
    assert "allow_advanced_sampling" not in speculative(LOWER, "ngram")


@pytest.mark.parametrize(("version", "method"), [(OLD, "eagle3"), (LOWER, "mtp")])
def test_sampling_is_refused_where_the_release_would_answer_greedily(
    version: str, method: str
) -> None:
    sampled = served(sampling=SAMPLED)
    assert "answered greedily" in refusal(sampled, version=version, method=method)
    plan = planned(version, sampled.evolve(allow_lossy=True), method=method)
    assert any("answered greedily" in note for note in plan.notes)


def test_sampling_is_served_where_the_release_verifies_it() -> None:
    for version, method in ((NEWEST, "mtp"), (LOWER, "eagle3"), (OLD, "draft_target")):
        notes = planned(version, served(sampling=SAMPLED), method=method).notes
        assert not any("answered greedily" in note for note in notes)


def test_a_schedule_has_lower_bounds_in_one_release_and_upper_bounds_in_the_next() -> None:
    assert speculative(LOWER, "draft_target", tuned(*TIERS))["draft_len_schedule"] == {
        1: 4,
        3: 2,
        11: 0,
    }
    assert speculative(NEWEST, "eagle3", tuned(*TIERS))["draft_len_schedule"] == {
        2: 4,
        10: 2,
        32: 1,
    }


def test_a_schedule_is_one_that_the_release_takes() -> None:
    for version, method in ((LOWER, "draft_target"), (NEWEST, "eagle3"), (NEWEST, "mtp")):
        accept(version, planned(version, tuned(*TIERS), method=method).arguments)


def test_a_schedule_does_not_fall_to_zero_where_the_drafter_would_lose_its_state() -> None:
    told = planned(NEWEST, tuned(*TIERS), method="eagle3").notes
    assert any("never falls below 1" in note for note in told)
    assert not any("never falls" in note for note in planned(LOWER, tuned(*TIERS)).notes)


def test_no_graph_is_padded_into_another_draft_length() -> None:
    sizes = graph_sizes(asked_of(LOWER, tuned(*TIERS)))
    assert {2, 3, 10, 11, 32} <= set(sizes)


def test_a_schedule_ends_at_the_largest_batch_and_under_the_draft_length() -> None:
    long = tuned((1, 1, 6), (2, 4, 4), (5, 40, 3), (41, 64, 1))
    assert speculative(LOWER, "draft_target", long)["draft_len_schedule"] == {1: 4, 5: 3}
    assert "draft_len_schedule" not in speculative(LOWER, "ngram", tuned((1, 32, 4)))


@pytest.mark.parametrize(
    ("version", "method", "tiers", "reason"),
    [
        (OLD, "draft_target", TIERS, "has no draft_len_schedule"),
        (LOWER, "eagle3", TIERS, "method eagle3 takes no draft_len_schedule"),
        (NEWEST, "ngram", TIERS, "method ngram takes no draft_len_schedule"),
        (LOWER, "draft_target", ((1, 4, 3), (5, 32, 1)), "starts at 3, not at draft_length 4"),
    ],
)
def test_a_schedule_that_is_left_out_is_told_with_the_reason(
    version: str, method: str, tiers: tuple[tuple[int, int, int], ...], reason: str
) -> None:
    plan = planned(version, tuned(*tiers), method=method)
    config = plan.arguments["speculative_config"]
    assert isinstance(config, dict)
    assert "draft_len_schedule" not in config
    assert any(reason in note for note in plan.notes)


def test_a_schedule_that_nobody_wants_is_left_out_in_silence() -> None:
    plan = planned(LOWER, tuned(*TIERS, llmapi=with_settings(schedule=False).llmapi))
    assert "draft_len_schedule" not in str(plan)


def test_a_lossy_setting_needs_permission_and_is_told() -> None:
    relaxed = with_settings(relaxed_topk=10, relaxed_delta=0.6)
    plan = planned(LOWER, relaxed, method="mtp")
    config = plan.arguments["speculative_config"]
    assert isinstance(config, dict)
    assert config["use_relaxed_acceptance_for_thinking"] is True
    assert (config["relaxed_topk"], config["relaxed_delta"]) == (10, 0.6)
    assert plan.lossy == ["llmapi.relaxed_topk 10", "llmapi.relaxed_delta 0.6"]
    forbidden = relaxed.evolve(allow_lossy=False)
    assert "allow_lossy: true permits it" in refusal(forbidden, method="mtp")
    delta = planned(LOWER, with_settings(relaxed_delta=0.5), method="mtp")
    assert "use_relaxed_acceptance_for_thinking" in str(delta.arguments)


def test_a_lossy_setting_belongs_to_its_method_and_its_releases() -> None:
    typical = with_settings(posterior_threshold=0.3)
    assert "'posterior_threshold': 0.3" in str(speculative(LOWER, "eagle3", typical))
    assert "relaxed" not in str(speculative(LOWER, "eagle3", typical))
    assert "is for method eagle3" in refusal(typical)
    assert "has no posterior_threshold" in refusal(typical, version=NEWEST, method="eagle3")
