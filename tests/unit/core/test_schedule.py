"""A schedule says the same thing in the words of every TensorRT-LLM release."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from releases import profile_for

from specdeploy.core.release_profile import DraftLenSchedule
from specdeploy.core.schedule import (
    DraftLengthSchedule,
    Meaning,
    check_schedule,
    plan_schedule,
    schedule_floor,
)

# Batch size -> speed of draft lengths 0 to 4: long drafts pay at small batches only.
FALLING = {
    1: [1.0, 1.4, 1.7, 1.9, 2.0],
    4: [1.0, 1.3, 1.5, 1.4, 1.2],
    8: [1.0, 1.2, 1.1, 0.9, 0.8],
    32: [1.0, 0.9, 0.7, 0.5, 0.4],
}
ROWS = st.lists(st.floats(0.1, 4), min_size=5, max_size=5)


ABSENT, LOWER, UPPER = (
    profile_for(version).draft_len_schedule for version in ("1.1.0", "1.2.1", "1.3.0rc20")
)


def planned(
    reading: DraftLenSchedule | None, method: str = "draft_target", load: tuple[int, ...] = ()
) -> DraftLengthSchedule:
    return plan_schedule(FALLING, method=method, reading=reading, max_batch_size=64, load=load)


def test_lower_bounds_start_at_one() -> None:
    schedule = planned(LOWER)
    assert schedule.draft_len_schedule == {1: 4, 4: 2, 8: 1, 32: 0}
    assert schedule.max_draft_len == 4


def test_upper_bounds_end_where_the_next_tier_starts() -> None:
    assert planned(UPPER).draft_len_schedule == {3: 4, 7: 2, 64: 1}


def test_both_forms_mean_the_same_tiers_where_neither_may_stop() -> None:
    assert planned(LOWER, "eagle3").tiers == planned(UPPER, "eagle3").tiers


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
    schedule = planned(UPPER)
    assert schedule.length_at(64) == 1
    assert any("never below 1" in note for note in schedule.notes)


def test_stopping_is_said_to_cost() -> None:
    schedule = planned(LOWER)
    assert schedule.length_at(32) == 0
    assert any("drafting stops at 32" in note for note in schedule.notes)


@pytest.mark.parametrize(
    ("reading", "said"),
    [(ABSENT, "nothing here reads a draft_len_schedule"), (None, "trtllm_version")],
)
def test_a_release_without_the_key_gets_none(reading: DraftLenSchedule | None, said: str) -> None:
    schedule = planned(reading)
    assert schedule.draft_len_schedule is None
    assert any(said in note for note in schedule.notes)
    assert schedule.length_at(5) == 2


def test_prompt_lookup_gets_no_keys() -> None:
    schedule = planned(UPPER, "ngram")
    assert schedule.draft_len_schedule is None
    assert "method ngram takes no draft_len_schedule in this release" in schedule.notes
    assert planned(LOWER, "ngram").draft_len_schedule == planned(LOWER).draft_len_schedule


def test_a_tier_that_gains_little_is_left_out() -> None:
    gains = {1: [1.0, 1.5, 1.6], 2: [1.0, 1.51, 1.5], 4: [1.0, 1.6, 1.5]}
    schedule = plan_schedule(gains, method="draft_target", reading=LOWER, max_batch_size=4)
    assert schedule.draft_len_schedule == {1: 2, 4: 1}


def test_ties_go_to_the_shorter_draft() -> None:
    schedule = plan_schedule(
        {1: [1.0, 1.5, 1.5]}, method="draft_target", reading=LOWER, max_batch_size=1
    )
    assert schedule.max_draft_len == 1


def test_a_load_near_a_threshold_is_told() -> None:
    assert any("threshold at 8" in note for note in planned(LOWER, load=(9,)).notes)
    assert not any("threshold" in note for note in planned(LOWER, load=(16,)).notes)


def test_below_the_smallest_known_batch_its_own_length_holds() -> None:
    gains = {4: [1.0, 1.5], 8: [1.0, 0.5]}
    schedule = plan_schedule(gains, method="draft_target", reading=LOWER, max_batch_size=8)
    assert schedule.draft_len_schedule == {1: 1, 8: 0}


def test_a_larger_load_that_wants_a_longer_draft_decides() -> None:
    gains = {1: [1.0, 0.8, 0.7], 8: [1.0, 1.2, 1.4], 32: [1.0, 0.9, 0.8]}
    schedule = plan_schedule(gains, method="draft_target", reading=LOWER, max_batch_size=32)
    assert schedule.draft_len_schedule == {1: 2, 32: 0}


def test_nothing_to_draft_anywhere_needs_no_keys() -> None:
    schedule = plan_schedule(
        {1: [1.0, 0.5]}, method="draft_target", reading=LOWER, max_batch_size=8
    )
    assert schedule.draft_len_schedule is None
    assert schedule.max_draft_len == 0


@given(st.dictionaries(st.integers(1, 64), ROWS, min_size=1), st.sampled_from([LOWER, UPPER]))
def test_what_is_planned_is_what_the_release_accepts(
    gains: dict[int, list[float]], reading: DraftLenSchedule
) -> None:
    schedule = plan_schedule(gains, method="draft_target", reading=reading, max_batch_size=64)
    lengths = [schedule.length_at(batch) for batch in range(1, 65)]
    assert lengths == sorted(lengths, reverse=True)
    keys = schedule.draft_len_schedule
    if keys is not None:
        found = check_schedule(keys, reading=reading, max_draft_len=schedule.max_draft_len)
        assert [problem for problem in found if "also valid" not in problem] == []
        assert lengths == [read(keys, reading.keys, batch) for batch in range(1, 65)]


def read(keys: dict[int, int], meaning: Meaning, batch: int) -> int:
    """Return the length as the release itself would look it up."""
    if meaning == "lower":
        return keys[max(key for key in keys if key <= batch)]
    return keys[min(key for key in keys if key >= batch)] if batch <= max(keys) else 0


@pytest.mark.parametrize(
    ("keys", "reading", "said"),
    [
        ({4: 4, 8: 2}, LOWER, "key 1 is missing"),
        ({}, LOWER, "key 1 is missing"),
        ({}, UPPER, "smallest key must map to max_draft_len 4"),
        ({4: 3}, UPPER, "smallest key must map to max_draft_len 4"),
        ({1: 4, 4: 9}, LOWER, "above max_draft_len 4"),
        ({1: 4}, LOWER, "keys are upper bounds"),
        ({1: 4}, UPPER, "keys are lower bounds"),
        ({1: 4}, ABSENT, "this release has no draft_len_schedule"),
    ],
)
def test_a_written_schedule_is_judged_by_its_release(
    keys: dict[int, int], reading: DraftLenSchedule, said: str
) -> None:
    problems = list(check_schedule(keys, reading=reading, max_draft_len=4))
    assert any(said in problem for problem in problems)
