"""A schedule says the same thing in the words of every TensorRT-LLM release."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeploy.core.schedule import (
    DraftLengthSchedule,
    Meaning,
    check_schedule,
    plan_schedule,
    schedule_floor,
    schedule_meaning,
)
from specdeploy.errors import ConfigError

# Batch size -> speed of draft lengths 0 to 4: long drafts pay at small batches only.
FALLING = {
    1: [1.0, 1.4, 1.7, 1.9, 2.0],
    4: [1.0, 1.3, 1.5, 1.4, 1.2],
    8: [1.0, 1.2, 1.1, 0.9, 0.8],
    32: [1.0, 0.9, 0.7, 0.5, 0.4],
}
ROWS = st.lists(st.floats(0.1, 4), min_size=5, max_size=5)


def planned(
    meaning: Meaning, method: str = "draft_target", load: tuple[int, ...] = ()
) -> DraftLengthSchedule:
    return plan_schedule(FALLING, method=method, meaning=meaning, max_batch_size=64, load=load)


@pytest.mark.parametrize(
    ("version", "meaning"),
    [
        ("0.20.0", "absent"),
        ("1.0.0", "absent"),
        ("1.1.0", "absent"),
        ("1.2.0rc6.post2", "unknown"),
        ("1.2.0", "lower"),
        ("1.2.1", "lower"),
        ("v1.3.0rc2", "lower"),
        ("1.3.0rc5", "unknown"),
        ("1.3.0rc8", "upper"),
        ("1.3.0rc20", "upper"),
        ("1.4.0rc4", "upper"),
        ("1.4", "upper"),
        (None, "unknown"),
    ],
)
def test_a_release_decides_what_a_key_bounds(version: str | None, meaning: Meaning) -> None:
    assert schedule_meaning(version) == meaning


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'newest' is no version"):
        schedule_meaning("newest")


def test_lower_bounds_start_at_one() -> None:
    schedule = planned("lower")
    assert schedule.draft_len_schedule == {1: 4, 4: 2, 8: 1, 32: 0}
    assert schedule.max_draft_len == 4


def test_upper_bounds_end_where_the_next_tier_starts() -> None:
    assert planned("upper").draft_len_schedule == {3: 4, 7: 2, 64: 1}


def test_both_forms_mean_the_same_tiers_where_neither_may_stop() -> None:
    assert planned("lower", "eagle3").tiers == planned("upper", "eagle3").tiers


@pytest.mark.parametrize(
    ("method", "meaning", "floor"),
    [
        ("draft_target", "lower", 0),
        ("draft_target", "upper", 1),
        ("eagle3", "lower", 1),
        ("mtp", "upper", 1),
        ("ngram", "upper", 0),
    ],
)
def test_a_drafter_inside_the_engine_never_stops(method: str, meaning: Meaning, floor: int) -> None:
    assert schedule_floor(method, meaning) == floor


def test_a_floor_is_kept_and_explained() -> None:
    schedule = planned("upper")
    assert schedule.length_at(64) == 1
    assert any("never below 1" in note for note in schedule.notes)


def test_stopping_is_said_to_cost() -> None:
    schedule = planned("lower")
    assert schedule.length_at(32) == 0
    assert any("drafting stops at 32" in note for note in schedule.notes)


@pytest.mark.parametrize(
    ("meaning", "said"), [("absent", "no draft_len_schedule"), ("unknown", "trtllm_version")]
)
def test_a_release_without_the_key_gets_none(meaning: Meaning, said: str) -> None:
    schedule = planned(meaning)
    assert schedule.draft_len_schedule is None
    assert any(said in note for note in schedule.notes)
    assert schedule.length_at(5) == 2


def test_prompt_lookup_gets_no_keys() -> None:
    schedule = planned("upper", "ngram")
    assert schedule.draft_len_schedule is None
    assert "prompt lookup takes no draft_len_schedule" in schedule.notes


def test_a_tier_that_gains_little_is_left_out() -> None:
    gains = {1: [1.0, 1.5, 1.6], 2: [1.0, 1.51, 1.5], 4: [1.0, 1.6, 1.5]}
    schedule = plan_schedule(gains, method="draft_target", meaning="lower", max_batch_size=4)
    assert schedule.draft_len_schedule == {1: 2, 4: 1}


def test_ties_go_to_the_shorter_draft() -> None:
    schedule = plan_schedule(
        {1: [1.0, 1.5, 1.5]}, method="draft_target", meaning="lower", max_batch_size=1
    )
    assert schedule.max_draft_len == 1


def test_a_load_near_a_threshold_is_told() -> None:
    assert any("threshold at 8" in note for note in planned("lower", load=(9,)).notes)
    assert not any("threshold" in note for note in planned("lower", load=(16,)).notes)


def test_below_the_smallest_known_batch_its_own_length_holds() -> None:
    gains = {4: [1.0, 1.5], 8: [1.0, 0.5]}
    schedule = plan_schedule(gains, method="draft_target", meaning="lower", max_batch_size=8)
    assert schedule.draft_len_schedule == {1: 1, 8: 0}


def test_nothing_to_draft_anywhere_needs_no_keys() -> None:
    schedule = plan_schedule(
        {1: [1.0, 0.5]}, method="draft_target", meaning="lower", max_batch_size=8
    )
    assert schedule.draft_len_schedule is None
    assert schedule.max_draft_len == 0


@given(st.dictionaries(st.integers(1, 64), ROWS, min_size=1), st.sampled_from(["lower", "upper"]))
def test_what_is_planned_is_what_the_release_accepts(
    gains: dict[int, list[float]], meaning: Meaning
) -> None:
    schedule = plan_schedule(gains, method="draft_target", meaning=meaning, max_batch_size=64)
    lengths = [schedule.length_at(batch) for batch in range(1, 65)]
    assert lengths == sorted(lengths, reverse=True)
    keys = schedule.draft_len_schedule
    if keys is not None:
        found = check_schedule(keys, meaning=meaning, max_draft_len=schedule.max_draft_len)
        assert [problem for problem in found if "also valid" not in problem] == []
        assert lengths == [read(keys, meaning, batch) for batch in range(1, 65)]


def read(keys: dict[int, int], meaning: Meaning, batch: int) -> int:
    """Return the length as the release itself would look it up."""
    if meaning == "lower":
        return keys[max(key for key in keys if key <= batch)]
    return keys[min(key for key in keys if key >= batch)] if batch <= max(keys) else 0


@pytest.mark.parametrize(
    ("keys", "meaning", "said"),
    [
        ({4: 4, 8: 2}, "lower", "key 1 is missing"),
        ({}, "lower", "key 1 is missing"),
        ({}, "upper", "smallest key must map to max_draft_len 4"),
        ({4: 3}, "upper", "smallest key must map to max_draft_len 4"),
        ({1: 4, 4: 9}, "lower", "above max_draft_len 4"),
        ({1: 4}, "lower", "keys are upper bounds"),
        ({1: 4}, "upper", "keys are lower bounds"),
        ({1: 4}, "absent", "absent in this release"),
    ],
)
def test_a_written_schedule_is_judged_by_its_release(
    keys: dict[int, int], meaning: Meaning, said: str
) -> None:
    assert any(
        said in problem for problem in check_schedule(keys, meaning=meaning, max_draft_len=4)
    )
