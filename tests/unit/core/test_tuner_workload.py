"""A workload with nothing left open, and everything that was assumed."""

from __future__ import annotations

from specdeploy.core.config import CategoryMix, SloSection, WorkloadSection
from specdeploy.core.tuner.workload import CONCURRENCIES, Limits, plan_workload


def test_what_is_not_given_is_assumed_and_said() -> None:
    load = plan_workload(WorkloadSection())
    assert (load.prompt.mean, load.answer.mean, load.concurrency) == (1024, 256, (8,))
    assert len(load.assumptions) == 3
    assert load.assumed_concurrency
    assert load.table == CONCURRENCIES


def test_what_is_given_is_not_assumed() -> None:
    section = WorkloadSection(input_len=100, output_len=50, concurrency=12)
    load = plan_workload(section)
    assert load.assumptions == ()
    assert not load.assumed_concurrency
    assert load.max_seq_len == 150
    assert 12 in load.table


def test_the_mean_decides_time_and_the_longest_decides_room() -> None:
    section = WorkloadSection(input_len=[100, 200, 900], output_len=[1, 40], concurrency=1)
    load = plan_workload(section)
    assert (load.prompt.mean, load.prompt.longest) == (400, 900)
    assert load.max_seq_len == 940
    assert load.answer.mean == 21  # an answer of one token has no time per later token


def test_a_rate_needs_no_concurrency() -> None:
    load = plan_workload(WorkloadSection(input_len=1, output_len=9, request_rate=2.5))
    assert load.request_rate == 2.5
    assert load.assumptions == ()


def test_several_concurrencies_are_planned_for_the_largest() -> None:
    load = plan_workload(WorkloadSection(concurrency=[16, 4, 16]))
    assert load.concurrency == (4, 16)
    assert load.planned == 16


def test_limits_mix_and_room_are_taken_over() -> None:
    section = WorkloadSection(
        categories=CategoryMix(code=2), slo=SloSection(ttft_ms=300, tpot_ms=20, e2e_ms=9000)
    )
    load = plan_workload(section, 4096)
    assert load.limits == Limits(300, 20, 9000)
    assert load.mix.code == 2
    assert load.max_seq_len == 4096
