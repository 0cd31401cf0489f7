"""What tune tells beside the choice: what it depends on, and what else it looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning_models import model_named
from releases import profile_for
from tuning_questions import SMALL_AXES, a_draft, a_question

from specdeploy.core.acceptance import (
    AcceptanceProfile,
    CategoryAcceptance,
    mix,
)
from specdeploy.core.config import CategoryMix
from specdeploy.core.memory import GpuMemory, plan_memory
from specdeploy.core.served import ServedPair
from specdeploy.core.tuner.answer import HOW_TO_MEASURE, Said, tune
from specdeploy.core.tuner.evaluate import memory_request
from specdeploy.core.tuner.ladder import build_ladder
from specdeploy.core.tuner.question import Candidate, Fixed, Question
from specdeploy.core.tuner.space import variants
from specdeploy.core.tuning import Tuning, TuningReport
from specdeploy.errors import InfeasiblePlanError
from specdeploy.units import GIB

TWO_KINDS = AcceptanceProfile(
    categories={
        "code": CategoryAcceptance(per_position=[0.85]),
        "conversation": CategoryAcceptance(per_position=[0.55]),
    }
)


def told(question: Question, **said: object) -> TuningReport:
    return tune(question, replace(Said("given"), **said), axes=SMALL_AXES)  # type: ignore[arg-type]


def mixed_draft() -> Candidate:
    mixed = mix(TWO_KINDS, CategoryMix(code=1, conversation=1))
    return replace(a_draft(), acceptance=mixed)


def test_speculation_that_pays_is_chosen_with_its_numbers() -> None:
    report = told(a_question(a_draft()))
    assert report.verdict == "speculate"
    assert report.choice.draft_length > 0
    assert report.choice.draft == "Llama-3.2-1B"
    assert report.memory.fits
    assert report.frontier[0].e2e_ms <= report.choice.e2e_ms
    assert report.draft_costs is not None


def test_a_build_reads_the_choice() -> None:
    report = told(a_question(a_draft()))
    read = Tuning.model_validate_json(report.model_dump_json(), strict=True).choice
    assert read.draft_length == report.choice.draft_length
    assert read.max_batch_size == report.choice.max_batch_size
    assert read.max_num_tokens == report.choice.max_num_tokens
    assert read.max_seq_len == 1280


def test_a_row_without_a_draft_equals_its_baseline_exactly() -> None:
    report = told(a_question(a_draft(0.0)))
    assert report.verdict == "off"
    for row in report.by_concurrency:
        assert (row.draft_length, row.speedup.value, row.whole_request_gain) == (0, 1.0, 1.0)
        assert (row.tpot_ms, row.ttft_ms) == (row.baseline_tpot_ms, row.baseline_ttft_ms)


def test_an_acceptance_too_low_is_told_with_the_one_that_would_do() -> None:
    report = told(a_question(a_draft(0.01)))
    assert report.verdict == "off"
    assert "no draft length pays at this acceptance (it would from 0." in report.reason
    assert report.schedule is None


@pytest.mark.parametrize("more", [-0.01, 0.01])
def test_break_even_is_where_the_verdict_turns(more: float) -> None:
    question = a_question(a_draft(0.5), load={"concurrency": 64})
    axes = replace(SMALL_AXES, concurrency=(64,))
    row = next(r for r in tune(question, Said(), axes=axes).by_concurrency if r.concurrency == 64)
    assert row.break_even_acceptance is not None
    moved = a_question(a_draft(row.break_even_acceptance + more), load={"concurrency": 64})
    best = next(r for r in tune(moved, Said(), axes=axes).by_concurrency if r.concurrency == 64)
    assert (best.draft_length > 0) == (more > 0)


def test_without_acceptance_nothing_is_made_up() -> None:
    report = told(a_question(a_draft(None)))
    assert (report.verdict, report.reason) == ("off", HOW_TO_MEASURE)
    assert report.acceptance_source is None
    assert report.choice.draft_length == 0
    assert {row.draft_length for row in report.by_concurrency} == {0}
    assert all(row.break_even_acceptance is not None for row in report.by_concurrency)
    assert {row.acceptance for row in report.if_acceptance} == {0.5, 0.6, 0.7, 0.8, 0.9}
    assert report.crossover is None
    assert report.sensitivity == []


def test_what_would_be_chosen_grows_with_the_acceptance() -> None:
    rows = told(a_question(a_draft(None))).if_acceptance
    at_one = [row.draft_length for row in rows if row.concurrency == 1]
    assert at_one == sorted(at_one)
    assert at_one[0] < at_one[-1]


def test_the_flips_are_where_the_choice_changes() -> None:
    report = told(a_question(mixed_draft()))
    moved = {found.category: found for found in report.sensitivity}
    assert set(moved) == {"code", "conversation"}
    under = [flip for flip in moved["conversation"].flips if flip.side == "under"]
    assert [flip.draft_length for flip in under] == sorted(
        (flip.draft_length for flip in under), reverse=True
    )
    assert all(flip.acceptance < 0.56 for flip in under)
    over = [flip for flip in moved["conversation"].flips if flip.side == "over"]
    assert all(flip.acceptance > 0.54 for flip in over)
    assert over


@pytest.mark.parametrize("more", [-0.004, 0.004])
def test_the_choice_changes_at_the_acceptance_that_is_told(more: float) -> None:
    question = a_question(a_draft())
    (moved,) = tune(question, Said()).sensitivity
    flip = next(flip for flip in moved.flips if flip.side == "under")
    there = a_question(a_draft(flip.acceptance + more))
    chosen = tune(there, Said()).choice.draft_length
    assert (chosen == flip.draft_length) == (more < 0)


def test_a_choice_at_the_edge_of_its_acceptance_has_a_regret() -> None:
    sure = told(a_question(a_draft()))
    unsure = told(a_question(mixed_draft()))
    assert all(found.regret >= 0 for found in sure.sensitivity)
    assert any(found.regret > 0 for found in unsure.sensitivity)
    assert all(found.regret < 0.5 for found in unsure.sensitivity)


def test_a_load_far_beyond_memory_has_no_regret_that_is_not_a_number() -> None:
    report = told(a_question(mixed_draft(), load={"concurrency": 10**9}))
    assert all(0 <= found.regret < 1 for found in report.sensitivity)


def test_the_crossover_lies_between_a_load_that_pays_and_one_that_does_not() -> None:
    fixed = Fixed(target_tp=8, draft_tp=1, max_num_tokens=8192)
    question = a_question(a_draft(0.6), gpu_count=8, fixed=fixed)
    report = tune(question, Said(), axes=replace(SMALL_AXES, max_num_tokens=(8192,)))
    assert report.crossover is not None
    around = {"concurrency": [report.crossover - 1, report.crossover]}
    moved = replace(question, workload=a_question(load=around).workload)
    axes = replace(SMALL_AXES, max_num_tokens=(8192,), concurrency=moved.workload.concurrency)
    rows = {row.concurrency: row for row in tune(moved, Said(), axes=axes).by_concurrency}
    assert rows[report.crossover - 1].draft_length > 0
    assert rows[report.crossover].draft_length == 0


def test_the_schedule_speaks_the_release_and_ends_at_the_batch() -> None:
    reading = profile_for("1.2.1").draft_len_schedule
    question = a_question(a_draft(), shape="llmapi")
    axes = replace(SMALL_AXES, max_batch_size=(64,))
    schedule = tune(question, Said(reading=reading), axes=axes).schedule
    assert schedule is not None
    assert schedule.draft_len_schedule is not None
    assert min(schedule.draft_len_schedule) == 1
    assert schedule.tiers[-1].to_batch == 64
    lengths = [tier.draft_length for tier in schedule.tiers]
    assert lengths == sorted(lengths, reverse=True)


def test_tiers_longer_than_the_choice_are_told() -> None:
    question = a_question(a_draft(), load={"concurrency": 64})
    axes = replace(SMALL_AXES, max_batch_size=(64,), concurrency=(64,))
    report = tune(question, Said(), axes=axes)
    assert report.schedule is not None
    longest = report.schedule.max_draft_len
    assert longest > report.choice.draft_length
    assert any(f"set draft_length: {longest} to have them" in n for n in report.schedule.notes)
    short = tune(a_question(a_draft(), load={"concurrency": 1}), Said()).schedule
    assert short is not None
    assert not any("to have them" in note for note in short.notes)


def test_a_price_turns_gpu_seconds_into_money() -> None:
    cost = told(a_question(a_draft()), price_per_gpu_hour=3.6).cost
    assert cost.classic is not None
    assert cost.speculative is not None
    assert cost.classic.money == pytest.approx(cost.classic.gpu_s / 1000)
    assert cost.speculative.gpu_s < cost.classic.gpu_s
    unpriced = told(a_question(a_draft())).cost
    assert unpriced.classic is not None
    assert unpriced.classic.money is None


def test_speedup_has_an_interval_that_holds_it_and_widens_with_acceptance() -> None:
    sure, unsure = told(a_question(a_draft())), told(a_question(mixed_draft()))
    for report in (sure, unsure):
        row = report.by_concurrency[0]
        assert row.speedup.low < row.speedup.value < row.speedup.high
    wide = unsure.by_concurrency[0].speedup
    tight = sure.by_concurrency[0].speedup
    assert wide.high / wide.low > tight.high / tight.low


def test_an_interval_that_reaches_below_one_is_warned_of() -> None:
    sure = told(a_question(a_draft()))
    least = next(r for r in sure.by_concurrency if r.concurrency == 8).break_even_acceptance
    assert least is not None
    report = told(a_question(a_draft(least + 0.01)))
    assert report.verdict == "speculate"
    assert any("interval of the speedup at 8" in warning for warning in report.warnings)


def test_requests_that_wait_for_memory_are_told() -> None:
    question = a_question(memory=GpuMemory(76 * GIB), load={"input_len": 16_000})
    report = tune(question, Said(), axes=SMALL_AXES)
    assert any("of 8 requests in flight; the others wait" in w for w in report.warnings)


def test_the_baseline_holds_what_a_server_without_a_draft_holds() -> None:
    question = a_question(a_draft(), memory=GpuMemory(78 * GIB))
    variant = next(v for v in variants(question) if v.pair.draft)
    ladder = build_ladder(question, variant, concurrency=(256,), max_num_tokens=8192)
    alone = replace(memory_request(question, variant), pair=ServedPair(variant.pair.target))
    plan = plan_memory(replace(alone, max_batch_size=256))
    assert ladder.lengths[0] == 0
    assert ladder.resident[0, 0] == plan.max_resident > ladder.resident[1, 0]


def test_a_pair_that_cannot_speculate_still_gets_a_server() -> None:
    report = told(a_question(a_draft(), memory=GpuMemory(72 * GIB)))
    assert report.verdict == "off"
    assert report.reason == "no way to draft is feasible"
    assert report.cost.speculative is None
    assert {row.draft_length for row in report.by_concurrency} == {0}


def test_prompt_lookup_has_no_draft_model() -> None:
    lookup = replace(a_draft(), name="ngram", method="ngram", spec=None)
    report = told(a_question(lookup))
    assert (report.choice.method, report.choice.draft) == ("ngram", None)
    assert report.draft_costs is None


@pytest.mark.parametrize(
    ("question", "said", "hint"),
    [
        (
            a_question(memory=GpuMemory(40 * GIB)),
            r"nothing fits on 1 x h200-sxm: .*weights",
            r"2|GPUs|tp",
        ),
        (
            a_question(memory=GpuMemory(GIB)),
            r"nothing fits on 1 x h200-sxm: .*weights",
            "take more or larger GPUs",
        ),
        (
            a_question(load={"slo": {"tpot_ms": 0.5}}),
            "nothing fits: time per output token is above its limit",
            "the best without limits takes",
        ),
        (
            a_question(load={"request_rate": 1e6}),
            "it does not carry the request rate",
            "requests per second",
        ),
        (
            a_question(fixed=Fixed(target_tp=4)),
            "needs 4 GPUs, and 1 may be used",
            "--tp 1",
        ),
        (
            a_question(load={"input_len": 150_000}),
            "longer than a model's positions",
            "workload.input_len",
        ),
        (
            a_question(fixed=Fixed(max_batch_size=512, max_num_tokens=256)),
            "is above max_num_tokens",
            "auto",
        ),
    ],
    ids=["memory", "tiny", "tpot", "rate", "gpus", "positions", "sizes"],
)
def test_nothing_feasible_names_what_binds_and_what_would_fit(
    question: Question, said: str, hint: str
) -> None:
    axes = None if question.fixed != Fixed() else SMALL_AXES
    with pytest.raises(InfeasiblePlanError, match=said) as caught:
        tune(question, Said(), axes=axes)
    assert caught.value.hint is not None
    assert hint.split("|", maxsplit=1)[0] in caught.value.hint or any(
        word in caught.value.hint for word in hint.split("|")
    )


def test_another_target_size_is_answered_too() -> None:
    question = a_question(a_draft(), target=model_named("Llama-3.1-8B"), precision="bf16")
    assert told(question).target == "Llama-3.1-8B"
