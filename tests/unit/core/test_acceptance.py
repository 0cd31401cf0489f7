"""Tokens per step follow from acceptance; nothing is counted twice or invented."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specdeploy.core.acceptance import (
    ALL,
    CATEGORIES,
    AcceptanceCounts,
    AcceptanceInterval,
    AcceptanceProfile,
    CategoryAcceptance,
    accepted_prefix,
    count_acceptance,
    curve_of,
    flat_mix,
    given_profile,
    mix,
    mixed_bounds,
    mixed_table,
    shift,
    tokens_per_step,
    tokens_table,
)
from specdeploy.core.acceptance_presets import PRESETS, flat_acceptance, preset_profile
from specdeploy.core.config import CategoryMix
from specdeploy.errors import ConfigError

SHARES = st.floats(0, 1)
CURVES = st.lists(SHARES, min_size=1, max_size=8)
LENGTHS = st.integers(0, 16)
TWO_KINDS = AcceptanceProfile(
    categories={
        "code": CategoryAcceptance(per_position=[0.9]),
        "conversation": CategoryAcceptance(per_position=[0.5]),
    }
)


def test_accepted_tokens_are_those_before_the_first_mismatch() -> None:
    assert accepted_prefix([True, False, True, True]) == 1
    assert accepted_prefix([True, True]) == 2
    assert accepted_prefix([]) == 0


def test_every_step_emits_one_token_more_than_it_accepted() -> None:
    """BL-095: of 6 drafted tokens 4 are accepted, not 5 and not 3."""
    counts = count_acceptance([[True, False, True], [True, True, True]])
    assert (counts.drafted, counts.accepted, counts.emitted) == (6, 4, 6)
    assert counts.rate == pytest.approx(0.667, abs=5e-4)


def test_a_rate_of_one_with_few_drafted_tokens_is_called_no_good_draft() -> None:
    counts = AcceptanceCounts(drafted=40, accepted=40, steps=200)
    assert (counts.rate, counts.drafted_per_step, counts.tokens_per_step) == (1.0, 0.2, 1.2)
    assert counts.warning is not None
    assert "0.2 drafted tokens per step is no good draft: 1.20 tokens per step" in counts.warning


def test_drafts_are_ranked_by_tokens_per_step_and_not_by_rate() -> None:
    shy = AcceptanceCounts(drafted=40, accepted=40, steps=200)
    bold = AcceptanceCounts(drafted=800, accepted=480, steps=200)
    assert shy.rate is not None
    assert bold.rate is not None
    assert shy.rate > bold.rate
    assert shy.tokens_per_step < bold.tokens_per_step
    assert bold.warning is None


def test_a_draft_that_proposes_much_and_is_always_right_is_not_warned_of() -> None:
    assert AcceptanceCounts(drafted=800, accepted=800, steps=200).warning is None


def test_nothing_counted_has_no_rate() -> None:
    nothing = count_acceptance([])
    assert nothing.rate is None
    assert nothing.warning is None
    assert (nothing.tokens_per_step, nothing.drafted_per_step) == (1.0, 0.0)


@given(LENGTHS)
def test_acceptance_0_gives_one_token_per_step_and_1_gives_all(length: int) -> None:
    assert tokens_per_step([0.0], length) == 1
    assert tokens_per_step([1.0], length) == length + 1


@given(st.floats(0.01, 0.99), LENGTHS)
def test_equal_acceptance_gives_the_published_formula(acceptance: float, length: int) -> None:
    closed = (1 - acceptance ** (length + 1)) / (1 - acceptance)
    assert tokens_per_step([acceptance], length) == pytest.approx(closed)


@given(CURVES, LENGTHS)
def test_a_longer_draft_never_gives_fewer_tokens(curve: list[float], length: int) -> None:
    table = tokens_table(curve, length)
    assert table == sorted(table)
    assert len(table) == length + 1
    assert table[0] == 1


def test_past_the_measured_positions_the_last_one_repeats() -> None:
    assert tokens_per_step([0.8, 0.5], 4) == pytest.approx(1 + 0.8 + 0.4 + 0.2 + 0.1)


def test_published_positions_give_the_published_tokens_per_step() -> None:
    # EAGLE-3 on HumanEval: cumulative 72, 50, 33 % give tokens per step of 2.55.
    assert tokens_per_step([0.72, 50 / 72, 33 / 50], 3) == pytest.approx(2.55)


def test_one_number_is_expanded_with_its_assumption_said() -> None:
    mixed = mix(given_profile(0.7), CategoryMix(code=1, conversation=1))
    assert mixed_table(mixed, 4) == pytest.approx(tokens_table([0.7], 4))
    assert any("at every position" in said for said in mixed.assumptions)
    assert any("+/- 0.05 is assumed" in said for said in mixed.assumptions)


@pytest.mark.parametrize("acceptance", [-0.1, 1.5, float("nan")])
def test_an_acceptance_that_is_no_share_is_refused(acceptance: float) -> None:
    with pytest.raises(ConfigError, match="not between 0 and 1"):
        given_profile(acceptance)


def test_kinds_of_request_count_by_the_time_they_take() -> None:
    mixed = mix(TWO_KINDS, CategoryMix(code=3, conversation=1))
    expected = 1 / (0.75 / 1.9 + 0.25 / 1.5)
    assert mixed_table(mixed, 1) == [1.0, pytest.approx(expected)]


def test_without_a_mix_every_measured_kind_counts_the_same() -> None:
    mixed = mix(TWO_KINDS, CategoryMix())
    assert mixed.shares == {"code": 0.5, "conversation": 0.5}
    assert any("every measured kind counts the same" in said for said in mixed.assumptions)


def test_a_kind_that_was_not_measured_is_refused_and_named() -> None:
    with pytest.raises(ConfigError, match="extraction, and the acceptance profile knows only code"):
        mix(TWO_KINDS, CategoryMix(code=1, extraction=1))


def test_all_stands_for_kinds_without_an_entry() -> None:
    categories = {**TWO_KINDS.categories, ALL: CategoryAcceptance(per_position=[0.2])}
    profile = TWO_KINDS.evolve(categories=categories)
    mixed = mix(profile, CategoryMix(extraction=1))
    assert mixed_table(mixed, 1)[1] == pytest.approx(1.2)


@given(CURVES, LENGTHS)
def test_the_bounds_hold_the_middle(curve: list[float], length: int) -> None:
    profile = AcceptanceProfile(categories={ALL: CategoryAcceptance(per_position=curve)})
    mixed = mix(profile, CategoryMix())
    low, high = mixed_bounds(mixed, length)
    assert all(a <= b <= c for a, b, c in zip(low, mixed_table(mixed, length), high, strict=True))


def test_measured_bounds_are_used_as_they_are() -> None:
    bounds = AcceptanceInterval(low=[0.6], high=[0.75], level=0.95)
    curve = curve_of(CategoryAcceptance(per_position=[0.7], interval=bounds))
    assert (curve.low, curve.high, curve.level) == ((0.6,), (0.75,), 0.95)


def test_a_measured_interval_is_not_called_assumed() -> None:
    bounds = AcceptanceInterval(low=[0.6], high=[0.75])
    known = CategoryAcceptance(per_position=[0.7], interval=bounds)
    said = mix(AcceptanceProfile(categories={"code": known}), CategoryMix(code=1)).assumptions
    assert said == ("past the last measured position, acceptance stays what it is there",)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [([0.1, 0.2], [0.9], "one number per position"), ([0.8], [0.9], "does not hold")],
)
def test_bounds_that_do_not_fit_are_refused(
    low: list[float], high: list[float], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        CategoryAcceptance(per_position=[0.7], interval=AcceptanceInterval(low=low, high=high))


def test_a_kind_can_be_moved_and_the_others_stay() -> None:
    mixed = mix(TWO_KINDS, CategoryMix(code=1, conversation=1))
    moved = shift(mixed, "conversation", 0.9)
    assert mixed_table(moved, 2) == pytest.approx(tokens_table([0.9], 2))
    assert moved.parts["code"] == mixed.parts["code"]


def test_a_flat_mix_is_known_exactly() -> None:
    low, high = mixed_bounds(flat_mix(0.6), 3)
    assert low == high == mixed_table(flat_mix(0.6), 3)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_whose_acceptance_it_is(name: str) -> None:
    profile = preset_profile(name)
    assert profile.source == f"preset:{name}"
    assert "another pair" in profile.assumptions[0]
    assert set(profile.categories) <= {ALL, *CATEGORIES}


def test_a_published_rate_becomes_acceptance_per_position() -> None:
    code = preset_profile("mtp-qwen3.6-35b").categories["code"]
    drafted = 4
    accepted = tokens_per_step(code.per_position, drafted) - 1
    assert accepted / drafted == pytest.approx(0.81)
    assert code.per_position[0] > 0.81


def test_an_unknown_preset_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"did you mean .eagle-vicuna-7b"):
        preset_profile("eagle-vicuna7b")


@given(SHARES, st.integers(1, 16))
def test_flat_acceptance_undoes_tokens_per_step(acceptance: float, length: int) -> None:
    tokens = tokens_per_step([acceptance], length)
    found = flat_acceptance(tokens, length)
    assert tokens_per_step([found], length) == pytest.approx(tokens)


def test_tokens_that_no_acceptance_gives_are_answered_with_the_nearer_end() -> None:
    assert flat_acceptance(0.5, 4) == 0
    assert flat_acceptance(9.0, 4) == 1
