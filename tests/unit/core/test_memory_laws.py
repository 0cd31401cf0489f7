"""What holds for every memory plan."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from itertools import permutations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from memory_plans import alone, changes, drafting, exactly, known, part, served, totals

from specdeploy.core.memory import (
    BINDINGS,
    NO_WORKSPACE,
    GpuMemory,
    KvFractions,
    LoraAdapters,
    MemoryGrid,
    MemoryLimit,
    MemoryPlan,
    MemoryRequest,
    Workspace,
    memory_grid,
    plan_memory,
)
from specdeploy.core.memory_records import GpuLedger
from specdeploy.core.served import ServedPair
from specdeploy.units import GIB

FEW = settings(max_examples=40)
TARGETS = [
    served("Llama-3.1-8B", "fp8"),
    served("Llama-3.1-70B", "int4_awq", tp=2),
    served("DeepSeek-R1", "nvfp4", tp=4),
    served("openai/gpt-oss-120b", "nvfp4", tp=2),
    served("google/gemma-2-9b", kv="fp8"),
]
DRAFTS = [None, served("Llama-3.2-1B"), served("Qwen2.5-0.5B", "fp8"), served("gemma-2-2b")]


@st.composite
def pairs(draw: st.DrawFn) -> ServedPair:
    target, draft = draw(st.sampled_from(TARGETS)), draw(st.sampled_from(DRAFTS))
    if draft is None:
        return ServedPair(target, method=draw(st.sampled_from(["none", "ngram"])))
    if draw(st.booleans()):
        target = replace(target, state_bytes_per_sequence=draw(st.integers(1, 10**8)))
    return drafting(target, draft, apart=draw(st.booleans()))


# Mostly ordinary cards that nobody uses, so that about half of the plans fit.
memories = st.sampled_from([known(name) for name in ("a10", "h100", "h200", "b200")]) | st.builds(
    GpuMemory,
    total_bytes=st.integers(8 * GIB, 190 * GIB),
    free_bytes=st.none() | st.integers(0, 190 * GIB),
    other_bytes=st.integers(0, 4 * GIB),
)
limits = st.builds(
    MemoryLimit, st.sampled_from(["free", "total"]), st.floats(0.3, 1, exclude_min=True)
)


@st.composite
def requests(draw: st.DrawFn) -> MemoryRequest:
    pair = draw(pairs())
    count = pair.target.tp + (pair.draft.tp if pair.draft and pair.draft_apart else 0)
    return MemoryRequest(
        pair=pair,
        gpu=tuple(draw(memories) for _ in range(count)),
        max_seq_len=draw(st.integers(1, 40_000)),
        limit=draw(limits),
        max_batch_size=draw(st.integers(1, 300)),
        max_num_tokens=draw(st.integers(1, 20_000)),
        draft_length=draw(st.integers(0, 16)),
        tokens_per_block=draw(st.sampled_from([1, 16, 32, 64, 128])),
        load_order=draw(st.sampled_from(["draft_first", "target_first"])),
        lora=draw(st.none() | st.just(LoraAdapters(count=4, rank=16))),
        cuda_graphs=draw(st.booleans()),
        workspace=draw(st.sampled_from([Workspace(), NO_WORKSPACE])),
    )


@given(requests())
def test_components_add_up_to_the_total_and_to_the_card(request: MemoryRequest) -> None:
    plan = plan_memory(request)
    for ledger in plan.gpus:
        assert ledger.total_bytes == sum(line.bytes for line in ledger.components)
        assert ledger.total_bytes + ledger.headroom_bytes == ledger.capacity_bytes
        assert min(line.bytes for line in ledger.components) >= 0
        names = [line.name for line in ledger.components]
        assert len(set(names)) == len(names)
    assert [ledger.index for ledger in plan.gpus] == list(range(request.gpu_count))


@FEW
@given(requests())
def test_what_fits_leaves_no_gpu_short_and_what_does_not_leaves_one(
    request: MemoryRequest,
) -> None:
    plan = plan_memory(request)
    assert plan.fits == (min(ledger.headroom_bytes for ledger in plan.gpus) >= 0)
    assert plan.fits == (plan.max_resident > 0) == (plan.binding.missing_bytes == 0)
    assert plan.fits == (plan.binding.constraint in {"none", "batch"})
    held = min(pool.tokens for pool in (plan.target, plan.draft) if pool is not None)
    assert plan.fits or held < plan.target.request_blocks * request.tokens_per_block


@given(requests(), st.data())
def test_a_grid_equals_the_plan_of_each_of_its_points(
    request: MemoryRequest, data: st.DataObject
) -> None:
    batch = data.draw(st.lists(st.integers(1, 300), min_size=1, max_size=3))
    lengths = data.draw(st.lists(st.integers(1, 40_000), min_size=1, max_size=3))
    drafted = data.draw(st.lists(st.integers(0, 16), min_size=1, max_size=2))
    tokens = data.draw(st.lists(st.integers(1, 20_000), min_size=1, max_size=2))
    grid = memory_grid(
        request,
        batch=np.array(batch)[:, None, None, None],
        max_seq_len=np.array(lengths)[:, None, None],
        draft_length=np.array(drafted)[:, None],
        max_num_tokens=np.array(tokens),
    )
    assert grid.fits.shape == (len(batch), len(lengths), len(drafted), len(tokens))
    place = tuple(data.draw(st.integers(0, size - 1)) for size in grid.fits.shape)
    one = replace(
        request,
        max_batch_size=batch[place[0]],
        max_seq_len=lengths[place[1]],
        draft_length=drafted[place[2]],
        max_num_tokens=tokens[place[3]],
    )
    assert_equal(grid, place, plan_memory(one))


def assert_equal(grid: MemoryGrid, place: tuple[int, ...], plan: MemoryPlan) -> None:
    assert grid.fits[place] == plan.fits
    assert grid.max_resident[place] == plan.max_resident
    assert BINDINGS[grid.binding[place]] == plan.binding.constraint
    used = [ours(ledger) for ledger in plan.gpus]
    needs = [plan.target.request_bytes, plan.draft.request_bytes if plan.draft else 0]
    assert grid.fixed_bytes[place] in used
    assert grid.request_bytes[place] in {*needs, sum(needs)}
    assert (grid.pool_bytes[place] >= grid.request_bytes[place]) == plan.fits


def ours(ledger: GpuLedger) -> int:
    """Return what is ours on a GPU, KV apart."""
    apart = {"other processes", "driver reserve", "reserve", "target KV pool", "draft KV pool"}
    return sum(line.bytes for line in ledger.components if line.name not in apart)


@FEW
@given(requests(), st.integers(1, 8 * GIB))
def test_more_memory_never_shrinks_what_fits(request: MemoryRequest, more: int) -> None:
    larger = replace(
        request,
        gpu=tuple(
            GpuMemory(
                memory.total_bytes + more,
                None if memory.free_bytes is None else memory.free_bytes + more,
                memory.other_bytes,
            )
            for memory in request.gpus
        ),
    )
    before, after = plan_memory(request), plan_memory(larger)
    assert after.max_resident >= before.max_resident
    assert after.fits >= before.fits
    assert after.largest_context >= before.largest_context
    assert after.target.tokens >= before.target.tokens


@FEW
@given(
    requests(),
    st.sampled_from(["draft_length", "max_batch_size", "max_num_tokens", "max_seq_len"]),
    st.integers(1, 200),
)
def test_more_of_anything_never_takes_less(request: MemoryRequest, size: str, more: int) -> None:
    larger = replace(request, **{size: getattr(request, size) + more})
    before, after = plan_memory(request), plan_memory(larger)
    assert all(b <= a for b, a in zip(totals(before), totals(after), strict=True))
    assert after.max_resident <= before.max_resident


@FEW
@given(requests())
def test_the_order_of_equal_gpus_changes_nothing(request: MemoryRequest) -> None:
    pair = request.pair
    assume(pair.target.tp > 1)
    first = pair.draft.tp if pair.draft is not None and not pair.draft_apart else 0
    whole = plan_memory(request)
    same = request.gpus[first : pair.target.tp]
    for order in list(permutations(same))[:6]:
        gpus = (*request.gpus[:first], *order, *request.gpus[pair.target.tp :])
        other = plan_memory(replace(request, gpu=gpus))
        assert (other.fits, other.max_resident) == (whole.fits, whole.max_resident)
        assert (other.target, other.draft) == (whole.target, whole.draft)
        assert other.largest_context == whole.largest_context
        assert sorted(totals(other)) == sorted(totals(whole))


@FEW
@given(requests())
def test_no_draft_and_no_draft_tokens_is_the_target_alone(request: MemoryRequest) -> None:
    plain = replace(
        request,
        pair=alone(request.pair.target),
        gpu=request.gpus[: request.pair.target.tp],
        draft_length=0,
    )
    lookup = replace(plain, pair=replace(plain.pair, method="ngram"))
    assert plan_memory(lookup) == plan_memory(plain)
    with_draft = plan_memory(request)
    for name in ("target weights", "target decoder buffers"):
        assert part(with_draft.gpus[0], name) == part(plan_memory(plain).gpus[0], name)


@FEW
@given(requests())
def test_the_largest_context_is_the_largest(request: MemoryRequest) -> None:
    largest = plan_memory(request).largest_context

    def fits(length: int) -> bool:
        return plan_memory(replace(request, max_seq_len=length)).fits

    pair = request.pair
    positions = pair.target.spec.context_length - request.draft_length
    if pair.draft is not None:
        positions = min(positions, pair.draft.spec.context_length)
    assert largest <= positions
    assert largest == 0 or fits(largest)
    assert largest == positions or not fits(largest + 1)


@FEW
@given(requests(), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_suggestions_fit_and_are_made_only_when_needed(
    request: MemoryRequest, first: float, second: float
) -> None:
    for asked in (request, replace(request, fractions=KvFractions(first, second))):
        plan = plan_memory(asked)
        assert not (plan.fits and plan.suggestions)
        assert all(suggestion.max_resident > 0 for suggestion in plan.suggestions)
        if not plan.fits and plan.largest_context:
            assert changes(plan)["context"] == plan.largest_context < asked.max_seq_len


@FEW
@given(requests())
def test_triton_gets_the_planned_pools_in_either_order(request: MemoryRequest) -> None:
    plan = plan_memory(request)
    assume(plan.fits)
    for index, (memory, ledger) in enumerate(zip(request.gpus, plan.gpus, strict=True)):
        free = memory.usable_bytes - part(ledger, "CUDA context")
        for role in request.load_order.removesuffix("_first"), "other":
            free = loaded(role, request, plan, ledger, free)
        assert free >= 0, index


def loaded(
    role: str, request: MemoryRequest, plan: MemoryPlan, ledger: GpuLedger, free: int
) -> int:
    """Return what is free when a model has loaded and taken its pool, as Triton does it."""
    if role == "other":
        role = "target" if request.load_order == "draft_first" else "draft"
    lines = [line for line in ledger.components if line.name.startswith(f"{role} ")]
    if not lines:
        return free
    free -= sum(line.bytes for line in lines if line.name != f"{role} KV pool")
    pool = plan.target if role == "target" else plan.draft
    assert pool is not None
    taken = part(ledger, f"{role} KV pool")
    assert free >= 0
    # A fraction of 1, which engines refuse, is written as one millionth less.
    assert pool.kv_cache_free_gpu_mem_fraction * free >= taken - 1 - free / 10**6
    assert pool.kv_cache_free_gpu_mem_fraction < 1
    return free - taken


def test_the_fullest_gpu_bounds_a_grid_and_sets_the_fraction() -> None:
    model = served("Llama-3.1-8B", tp=2)
    request = MemoryRequest(
        alone(model),
        (exactly(14 * GIB), exactly(12 * GIB)),
        2048,
        max_batch_size=1000,
        workspace=NO_WORKSPACE,
    )
    plan = plan_memory(request)
    small = plan_memory(replace(request, gpu=exactly(12 * GIB)))
    assert plan.target == small.target
    assert plan.target.kv_cache_free_gpu_mem_fraction > 0.89
    assert int(memory_grid(request).max_resident) == plan.max_resident
    backwards = replace(request, gpu=request.gpus[::-1])
    assert int(memory_grid(backwards).max_resident) == plan.max_resident
    assert plan_memory(backwards).target == plan.target


def test_a_million_settings_take_well_under_half_a_second() -> None:
    pair = drafting(served("Llama-3.1-70B", "fp8", tp=4), served("Llama-3.2-1B"))
    request = MemoryRequest(pair, known("h100"), 4096)
    seconds = []
    for _ in range(3):
        started = time.process_time()
        grid = memory_grid(
            request,
            batch=np.arange(1, 101)[:, None, None, None],
            draft_length=np.arange(10)[:, None, None],
            max_num_tokens=512 * np.arange(1, 11)[:, None],
            max_seq_len=256 * np.arange(1, 101),
        )
        seconds.append(time.process_time() - started)
        assert grid.fits.size == 10**6
        assert grid.fits.all()
    assert min(seconds) < 0.4


def test_a_grid_keeps_a_stated_context() -> None:
    request = MemoryRequest(alone(served("Llama-3.1-8B")), exactly(40 * GIB), 8192, context=1024)
    lengths = np.array([8192, 16_384])
    kept = memory_grid(request, max_seq_len=lengths)
    given_context = memory_grid(request, max_seq_len=lengths, context=np.array(1024))
    follows = memory_grid(replace(request, context=None), max_seq_len=lengths)
    for field in fields(MemoryGrid):
        assert (getattr(kept, field.name) == getattr(given_context, field.name)).all()
    assert kept.request_bytes[0] == kept.request_bytes[1] == 1024 * 131_072
    assert follows.request_bytes.tolist() == [8192 * 131_072, 16_384 * 131_072]
