"""Laws that hold for every prediction of speed, whatever the constants are."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speed_pairs import H100, LOAD, a_pair, gpu_with, target, with_head

from specdeploy.core.served import ServedPair
from specdeploy.core.speed import Load, estimate_speed, prefill_seconds, speed_grid, step_seconds

PAIRS = {
    "draft model": a_pair(),
    "two models through BLS": a_pair(through_bls=True),
    "eagle head": with_head("eagle"),
    "medusa heads": with_head("medusa"),
    "prompt lookup": ServedPair(target(), method="ngram"),
}
EVERY_PAIR = pytest.mark.parametrize("name", PAIRS)
LENGTHS = st.integers(1, 10)
BATCHES = st.integers(1, 300)


@EVERY_PAIR
@pytest.mark.parametrize("load", [LOAD, replace(LOAD, equal_lengths=True, batch_wait_iters=20)])
def test_no_draft_tokens_equal_the_baseline_to_the_last_bit(name: str, load: Load) -> None:
    found = estimate_speed(PAIRS[name], H100, load, draft_length=0, tokens_per_step=3.0)
    assert found.speculative == found.baseline
    assert found.terms == found.baseline_terms
    assert found.speedup == 1.0


@EVERY_PAIR
@settings(max_examples=20, deadline=None)
@given(length=LENGTHS, batch=BATCHES, low=st.floats(1, 5), more=st.floats(0, 5))
def test_more_accepted_tokens_are_never_slower(
    name: str, length: int, batch: int, low: float, more: float
) -> None:
    grid = speed_grid(
        PAIRS[name],
        H100,
        Load(batch, 1024, 512),
        draft_length=length,
        tokens_per_step=np.array([low, low + more]),
    )
    whole = grid.ttft_ms + 511 * grid.tpot_ms
    assert grid.tpot_ms[1] <= grid.tpot_ms[0]
    assert whole[1] <= whole[0] * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(length=LENGTHS, batch=BATCHES, share=st.floats(1, 10))
def test_more_bandwidth_is_never_slower(length: int, batch: int, share: float) -> None:
    pair = a_pair(tp=2)
    slow, fast = (
        speed_grid(
            pair,
            gpu_with(bandwidth_gb_s=bandwidth),
            Load(batch, 1024, 512),
            draft_length=length,
            tokens_per_step=2.0,
        )
        for bandwidth in (3000, 3000 * share)
    )
    assert fast.tpot_ms <= slow.tpot_ms
    assert fast.ttft_ms <= slow.ttft_ms


@pytest.mark.parametrize("equal", [False, True])
def test_more_requests_never_make_one_of_them_faster(*, equal: bool) -> None:
    batch = np.arange(1, 257)
    load = Load(batch, 1024, 512, equal_lengths=equal)
    grid = speed_grid(a_pair(), H100, load, draft_length=3, tokens_per_step=2.0)
    assert (np.diff(grid.tpot_ms) >= 0).all()
    assert (np.diff(grid.ttft_ms) >= 0).all()


def test_permuting_the_grid_changes_nothing() -> None:
    shuffled = np.random.default_rng(1).permutation(60)
    batch, length = (axis.ravel() for axis in np.meshgrid(np.arange(1, 11), np.arange(6)))
    emitted = 1.0 + length / 2
    straight = speed_grid(
        a_pair(), H100, Load(batch, 1024, 512), draft_length=length, tokens_per_step=emitted
    )
    mixed = speed_grid(
        a_pair(),
        H100,
        Load(batch[shuffled], 1024, 512),
        draft_length=length[shuffled],
        tokens_per_step=emitted[shuffled],
    )
    assert np.array_equal(straight.tpot_ms[shuffled], mixed.tpot_ms)
    assert np.array_equal(straight.ttft_ms[shuffled], mixed.ttft_ms)


def test_a_grid_holds_what_single_estimates_say() -> None:
    batch, length = np.array([[1], [8], [64]]), np.array([[0, 2, 5]])
    grid = speed_grid(
        a_pair(), H100, Load(batch, 1024, 512), draft_length=length, tokens_per_step=2.5
    )
    assert grid.tpot_ms.shape == grid.baseline_tpot_ms.shape == (3, 3)
    for (row, column), tpot in np.ndenumerate(grid.tpot_ms):
        one = estimate_speed(
            a_pair(),
            H100,
            Load(int(batch[row, 0]), 1024, 512),
            draft_length=int(length[0, column]),
            tokens_per_step=2.5,
        )
        assert tpot == one.speculative.tpot_ms
        assert grid.ttft_ms[row, column] == one.speculative.ttft_ms
        assert grid.baseline_ttft_ms[row, column] == one.baseline.ttft_ms


def test_terms_add_up_to_the_step() -> None:
    found = estimate_speed(a_pair(tp=2), H100, LOAD, draft_length=3, tokens_per_step=2.0)
    assert sum(found.terms.values()) == pytest.approx(found.speculative.step_ms)
    assert found.terms[found.bound_by] == max(found.terms.values())


def test_verifying_more_positions_is_never_free() -> None:
    positions = np.arange(1, 64)
    terms = step_seconds(target(tp=2), H100, requests=4, tokens_per_request=positions, context=2048)
    assert (np.diff(terms.total) > 0).all()


def test_a_request_alone_decodes_at_the_speed_of_its_steps() -> None:
    found = estimate_speed(a_pair(), H100, Load(1, 1024, 512), draft_length=3, tokens_per_step=2)
    assert found.baseline.tpot_ms == pytest.approx(found.baseline.step_ms)
    assert found.speculative.tpot_ms == pytest.approx(found.speculative.step_ms / 2)


def test_requests_that_memory_does_not_hold_wait_for_a_seat() -> None:
    held = estimate_speed(a_pair(), H100, Load(64, 1024, 512), draft_length=0, tokens_per_step=1)
    few = Load(64, 1024, 512, resident=16)
    waiting = estimate_speed(a_pair(), H100, few, draft_length=0, tokens_per_step=1)
    assert waiting.baseline.ttft_ms > 10 * held.baseline.ttft_ms
    assert waiting.baseline.tpot_ms < held.baseline.tpot_ms
    assert waiting.baseline.tokens_per_s < held.baseline.tokens_per_s


def test_the_baseline_may_hold_more_requests_than_speculation() -> None:
    load = Load(64, 1024, 512, resident=16, resident_plain=64)
    found = estimate_speed(a_pair(), H100, load, draft_length=3, tokens_per_step=2)
    everything = estimate_speed(
        a_pair(), H100, Load(64, 1024, 512), draft_length=0, tokens_per_step=1
    )
    assert found.baseline == everything.baseline
    assert found.speculative.ttft_ms > 10 * found.baseline.ttft_ms


def test_prefill_of_a_longer_prompt_takes_more_than_its_share() -> None:
    short, long = (
        float(prefill_seconds(target(), H100, requests=1, tokens_per_request=tokens).total)
        for tokens in (8192, 32768)
    )
    assert long > 4 * short


def test_a_million_points_take_less_than_half_a_second() -> None:
    batch, length, emitted = np.ix_(np.arange(1, 101), np.arange(20), np.linspace(1, 5, 500))
    load = Load(batch, 1024, 512, resident=64)
    spent = []
    for _ in range(3):
        started = time.perf_counter()
        speed_grid(a_pair(), H100, load, draft_length=length, tokens_per_step=emitted)
        spent.append(time.perf_counter() - started)
    assert min(spent) < 0.5


def test_an_answer_of_one_token_has_the_time_of_a_second_one() -> None:
    one, two = (
        estimate_speed(a_pair(), H100, Load(8, 1024, length), draft_length=3, tokens_per_step=2)
        for length in (1, 2)
    )
    assert one.baseline.tpot_ms == pytest.approx(two.baseline.tpot_ms, rel=1e-3)
