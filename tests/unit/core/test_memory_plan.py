"""Memory plans: what each line counts, where models sit, what is refused and what is offered."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from memory_plans import (
    ALL,
    alone,
    changes,
    drafting,
    exactly,
    known,
    part,
    served,
    small_request,
    weightless,
)
from planning_models import model_named

from specdeploy.core.memory import (
    NO_WORKSPACE,
    GpuMemory,
    LoraAdapters,
    MemoryLimit,
    MemoryPlan,
    MemoryRequest,
    Workspace,
    plan_memory,
)
from specdeploy.core.models import KvLayers, KvWidth
from specdeploy.core.served import ServedModel, serve_model
from specdeploy.errors import ConfigError
from specdeploy.units import GIB, MIB

TARGET = served("Llama-3.1-8B", "fp8")
DRAFT = served("Llama-3.2-1B")
VOCABULARY = 128_256


def lines(request: MemoryRequest, gpu: int = 0) -> dict[str, int]:
    """Return the lines of one GPU."""
    return {line.name: line.bytes for line in plan_memory(request).gpus[gpu].components}


def test_every_line_of_a_pair_on_one_gpu() -> None:
    request = MemoryRequest(
        drafting(TARGET, DRAFT), known("h100"), 4096, max_batch_size=4, draft_length=3
    )
    found = lines(request)
    assert list(found) == [
        "other processes",
        "driver reserve",
        "CUDA context",
        "target weights",
        "target activations",
        "target runtime buffers",
        "target decoder buffers",
        "target logits",
        "draft weights",
        "draft activations",
        "draft runtime buffers",
        "draft decoder buffers",
        "draft logits",
        "target KV pool",
        "draft KV pool",
        "reserve",
    ]
    assert found["target logits"] == 4 * (3 + 1) * VOCABULARY * 4
    assert found["draft logits"] == 4 * 3 * VOCABULARY * 4
    assert found["target runtime buffers"] == 4 * 4096 * 24
    assert found["target KV pool"] == 4 * 129 * 32 * TARGET.kv_bytes_per_token
    assert found["draft KV pool"] == 4 * 129 * 32 * DRAFT.kv_bytes_per_token
    assert found["CUDA context"] == 768 * MIB


def test_every_line_has_its_formula() -> None:
    request = small_request(drafting(TARGET, DRAFT), known("h100"))
    formulas = {line.name: line.formula for line in plan_memory(request).gpus[0].components}
    assert formulas["target logits"] == "4 x (4 + 1) rows x 513,024 B"
    assert formulas["target weights"] == "8,030,261,248 parameters in fp8 / tp 1"
    assert formulas["target KV pool"] == "4 requests x 541,065,216 B, 129 blocks each"
    assert formulas["reserve"] == "kept free by the limit of 0.9 of free memory"


def test_a_pool_that_requests_wait_for_is_counted_in_blocks() -> None:
    request = replace(small_request(drafting(TARGET, DRAFT), known("h100")), max_batch_size=500)
    plan = plan_memory(request)
    formulas = {line.name: line.formula for line in plan.gpus[0].components}
    assert plan.binding.constraint == "batch"
    assert f"holds {plan.max_resident} of 500 whole requests; the others wait" in (
        plan.binding.message
    )
    assert formulas["target KV pool"].startswith(
        f"{plan.target.tokens // 32:,} blocks of 32 tokens"
    )
    assert plan.target.max_tokens_in_paged_kv_cache == plan.target.tokens
    assert plan.gpus[0].headroom_bytes == 0
    assert plan.suggestions == []


def test_a_pool_is_no_larger_than_the_requests_that_can_run() -> None:
    plan = plan_memory(small_request(alone(TARGET), known("h100")))
    assert plan.binding.message == "all 4 requests are held at once"
    assert plan.target.max_tokens_in_paged_kv_cache == 4 * 129 * 32
    assert plan.target.tokens > plan.target.max_tokens_in_paged_kv_cache
    assert plan.gpus[0].headroom_bytes > 0


def test_activations_are_for_the_larger_of_prefill_and_verification() -> None:
    request = replace(
        small_request(alone(TARGET), known("h100")), max_batch_size=256, max_num_tokens=1024
    )
    few, many = lines(request), lines(replace(request, draft_length=15))
    row = VOCABULARY * 2
    per_token = (few["target activations"] - 32 * MIB - 256 * 5 * row) // 1280
    assert many["target activations"] == 32 * MIB + 4096 * (per_token + row)
    (note,) = plan_memory(request).notes
    assert note.startswith("1,280 rows of one step (batch x (k + 1)) are planned for")
    assert note.endswith("an engine of max_num_tokens 1,024 cannot verify them at once")


def test_tensor_parallelism_divides_what_is_split() -> None:
    one = lines(small_request(alone(served("Llama-3.1-8B")), known("h100")))
    four = lines(small_request(alone(served("Llama-3.1-8B", tp=4)), known("h100")))
    assert four["target weights"] * 4 == one["target weights"]
    assert four["target KV pool"] * 4 == one["target KV pool"]
    assert one["target activations"] / 4 < four["target activations"] < one["target activations"]
    assert four["target logits"] == one["target logits"]
    assert four["target NCCL"] == 392 * MIB
    assert "target NCCL" not in one


def test_a_mixture_copies_tokens_to_its_experts() -> None:
    mixture = served("Qwen3-30B-A3B")
    request = small_request(alone(mixture), known("h200"))
    copied = lines(request)["target activations"]
    plain = replace(request, workspace=Workspace(expert_copies=0))
    assert copied - lines(plain)["target activations"] == 8192 * 8 * 2048 * 2


def test_a_feed_forward_width_that_is_not_stated_is_four_times_the_hidden_size() -> None:
    spec = served("Llama-3.1-8B").spec.evolve(intermediate_size=None)
    request = small_request(alone(serve_model(spec)), known("h100"))
    stated = small_request(
        alone(serve_model(spec.evolve(intermediate_size=4 * 4096))), known("h100")
    )
    assert lines(request) == lines(stated)


@pytest.mark.parametrize(
    ("batch", "k", "graphs"), [(1, 0, 1), (4, 0, 3), (8, 2, 8), (128, 0, 19), (300, 1, 42)]
)
def test_graphs_are_captured_per_batch_size_and_draft_length(
    batch: int, k: int, graphs: int
) -> None:
    request = replace(
        small_request(alone(TARGET), known("b200")),
        max_batch_size=batch,
        draft_length=k,
        cuda_graphs=True,
    )
    assert lines(request)["target CUDA graphs"] == graphs * 10 * MIB


def test_adapters_take_memory_of_the_target_when_asked() -> None:
    request = small_request(drafting(TARGET, DRAFT), known("h100"))
    found = lines(replace(request, lora=LoraAdapters(count=2, rank=16)))
    ends = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14_336)
    assert found["target LoRA adapters"] == 2 * 16 * ends * 32 * 2
    assert not any("draft LoRA" in name for name in found)


def test_workspaces_can_be_left_out() -> None:
    request = small_request(drafting(TARGET, DRAFT), exactly(40 * GIB))
    counted = {
        name
        for name, size in lines(replace(request, workspace=NO_WORKSPACE)).items()
        if size and "KV" not in name
    }
    assert counted == {"target weights", "draft weights", "reserve"}


def test_a_draft_at_tp_1_fills_the_first_gpu_of_its_target() -> None:
    pair = drafting(served("Llama-3.1-8B", tp=2), DRAFT)
    plan = plan_memory(small_request(pair, known("a10")))
    assert "draft weights" in {line.name for line in plan.gpus[0].components}
    assert "draft weights" not in {line.name for line in plan.gpus[1].components}
    assert plan.gpus[0].total_bytes > plan.gpus[1].total_bytes
    assert plan.draft is not None
    assert plan.target.tokens == plan.draft.tokens
    assert plan.binding.gpu == 0


def test_a_draft_apart_takes_a_gpu_of_its_own() -> None:
    pair = drafting(served("Llama-3.1-8B", tp=2), DRAFT, apart=True)
    request = small_request(pair, (known("a10"), known("a10"), known("l4")))
    plan = plan_memory(request)
    assert [ledger.index for ledger in plan.gpus] == [0, 1, 2]
    assert "target weights" not in {line.name for line in plan.gpus[2].components}
    assert plan.gpus[2].capacity_bytes == known("l4").total_bytes


def test_a_draft_wider_than_its_target_needs_gpus_of_its_own() -> None:
    wide = served("Llama-3.2-1B", tp=2)
    with pytest.raises(ConfigError, match="a draft on 2 GPUs cannot share the 1 of its target"):
        plan_memory(small_request(drafting(TARGET, wide), known("h100")))
    assert plan_memory(small_request(drafting(TARGET, wide, apart=True), known("h100"))).fits


def test_what_the_driver_tells_is_taken_as_it_is() -> None:
    memory = GpuMemory(80 * GIB, free_bytes=70 * GIB, other_bytes=9 * GIB)
    found = lines(small_request(alone(TARGET), memory))
    assert found["other processes"] == 9 * GIB
    assert found["driver reserve"] == GIB
    assert memory.usable_bytes == 70 * GIB


def test_memory_that_contradicts_itself_still_adds_up() -> None:
    memory = GpuMemory(80 * GIB, free_bytes=90 * GIB, other_bytes=9 * GIB)
    assert (memory.usable_bytes, memory.held_bytes, memory.reserve_bytes) == (80 * GIB, 0, 0)
    assert GpuMemory(GIB, other_bytes=2 * GIB).usable_bytes == 0
    assert GpuMemory(GIB, free_bytes=-1).usable_bytes == 0


def test_a_share_of_the_total_counts_what_others_hold() -> None:
    request = MemoryRequest(
        alone(weightless(TARGET)),
        GpuMemory(10 * GIB, other_bytes=2 * GIB),
        1024,
        limit=MemoryLimit.of_total(0.5),
        max_batch_size=10_000,
        workspace=NO_WORKSPACE,
    )
    pool = part(plan_memory(request).gpus[0], "target KV pool")
    assert pool / GIB == pytest.approx(3, abs=0.01)


def plan_of(model: ServedModel, size: float, *, batch: int = 8, tokens: int = 8192) -> MemoryPlan:
    pair, gpu = alone(model), exactly(size)
    return plan_memory(MemoryRequest(pair, gpu, 4096, max_batch_size=batch, max_num_tokens=tokens))


def test_buffers_that_do_not_fit_are_named_and_smaller_ones_offered() -> None:
    plan = plan_of(TARGET, 16 * GIB, batch=4096, tokens=16_384)
    assert not plan.fits
    assert plan.binding.constraint == "buffers"
    assert "activations and buffers take" in plan.binding.message
    assert plan.suggestions[0].change == "batch"
    batch = changes(plan)["batch"]
    assert isinstance(batch, int)
    assert plan_of(TARGET, 16 * GIB, batch=batch, tokens=16_384).fits
    assert not plan_of(TARGET, 16 * GIB, batch=batch + 1, tokens=16_384).fits


def test_fewer_tokens_per_step_are_offered_when_they_make_room() -> None:
    plan = plan_of(TARGET, 12.5 * GIB, batch=1, tokens=65_536)
    tokens = changes(plan)["max_num_tokens"]
    assert isinstance(tokens, int)
    assert plan_of(TARGET, 12.5 * GIB, batch=1, tokens=tokens).fits
    assert not plan_of(TARGET, 12.5 * GIB, batch=1, tokens=tokens + 1).fits


def test_a_pair_that_is_too_large_is_offered_every_way_out() -> None:
    target = served("Llama-3.1-8B", "fp8")
    request = MemoryRequest(
        drafting(target, DRAFT), exactly(21 * GIB), 60_000, max_batch_size=1, draft_length=3
    )
    plan = plan_memory(request)
    assert plan.binding.constraint == "request"
    offered = changes(plan)
    assert list(offered) == [
        "context",
        "kv_dtype",
        "draft",
        "draft_gpu",
        "no_draft",
        "precision",
        "gpus",
    ]
    assert len(plan.suggestions) == len(offered)
    assert offered["context"] == plan.largest_context < 60_000
    assert offered["kv_dtype"] == "fp8"
    assert offered["precision"] == "int4_awq"
    assert offered["gpus"] == 2


def test_the_largest_draft_that_would_fit_is_offered() -> None:
    request = MemoryRequest(
        drafting(TARGET, served("Llama-3.2-3B")), exactly(16 * GIB), 2048, max_batch_size=1
    )
    plan = plan_memory(request)
    size = changes(plan)["draft"]
    assert isinstance(size, int)
    draft = request.pair.draft
    assert draft is not None
    for weights, fits in ((size, True), (size + 10 * MIB, False)):
        pair = replace(request.pair, draft=replace(draft, weight_bytes=weights))
        assert plan_memory(replace(request, pair=pair)).fits == fits
    assert f"take a draft of at most {size:,} bytes of weights per GPU" in {
        suggestion.message for suggestion in plan.suggestions
    }


def test_a_higher_share_is_offered_and_is_the_smallest() -> None:
    request = MemoryRequest(
        alone(TARGET),
        exactly(30 * GIB),
        8192,
        limit=MemoryLimit.of_total(0.3),
        max_batch_size=1,
    )
    plan = plan_memory(request)
    share = changes(plan)["memory_limit"]
    assert isinstance(share, float)
    assert plan_memory(replace(request, limit=MemoryLimit.of_total(share))).fits
    below = MemoryLimit.of_total(round(share - 0.0002, 4))
    assert not plan_memory(replace(request, limit=below)).fits


def test_heads_that_cannot_be_spread_wider_are_not_offered() -> None:
    spec = model_named("Llama-3.1-8B").evolve(
        attention_heads=12,
        kv_layers=[KvLayers(layers=32, width=KvWidth(kv_heads=6, values_per_head=256))],
    )
    (only,) = plan_of(serve_model(spec), 6 * GIB).suggestions
    assert only.message.endswith("to int4_awq, and spread the target over 2 GPUs")
    assert changes(plan_of(served("Llama-3.1-8B"), 6 * GIB))["gpus"] == 4


def test_two_changes_are_offered_when_one_is_not_enough() -> None:
    plan = plan_of(served("Llama-3.1-405B"), 30 * GIB)
    assert plan.suggestions[0].message == (
        "quantize the target's weights to fp8, and spread the target over 16 GPUs"
    )
    assert {suggestion.change for suggestion in plan.suggestions} == {"gpus"}
    assert plan_of(served("Llama-3.1-405B"), 2 * GIB).suggestions == []


def test_a_model_without_stated_positions_is_bounded_by_memory_alone() -> None:
    spec = model_named("Llama-3.1-8B").evolve(context_length=0)
    plan = plan_of(serve_model(spec), 60 * GIB, batch=1)
    assert plan.largest_context > 131_072
    assert plan_of(served("Llama-3.1-8B"), 60 * GIB).largest_context == 131_072


def test_a_model_that_keeps_no_cache_bounds_nothing() -> None:
    spec = model_named("Llama-3.1-8B").evolve(kv_layers=[])
    plan = plan_of(serve_model(spec), 60 * GIB)
    assert plan.fits
    assert plan.target.request_bytes == 0


def test_four_bit_caches_say_what_is_not_counted() -> None:
    plan = plan_of(serve_model(model_named("Llama-3.1-8B"), kv_dtype="nvfp4"), 60 * GIB)
    assert any("block scales of a 4-bit KV cache" in note for note in plan.notes)


def test_a_shorter_whole_request_raises_what_is_held() -> None:
    request = MemoryRequest(alone(TARGET), known("a10"), 32_768, max_batch_size=1)
    short = plan_memory(replace(request, context=4096))
    assert short.max_resident > 7 * plan_memory(request).max_resident


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="is not above 0 and at most 1"):
        MemoryLimit.of_free(share)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_batch_size": 0}, "max_batch_size 0 is not between 1 and 65,536"),
        ({"max_seq_len": 2**25}, "max_seq_len 33,554,432 is not between 1"),
        ({"draft_length": -1}, "draft_length -1 is not between 0 and 1,024"),
        ({"context": 4097}, "context 4,097 is not between 1 and max_seq_len 4,096"),
        ({"gpu": (exactly(1), exactly(1))}, "2 GPUs are given for a pair that takes 1"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(MemoryRequest(alone(TARGET), known("a10"), 4096), **settings)


def test_the_plan_survives_json() -> None:
    plan = plan_memory(small_request(drafting(TARGET, DRAFT), known("a10")))
    assert MemoryPlan.model_validate_json(plan.model_dump_json()) == plan
    assert plan.limit == "0.9 of free memory"
    assert str(ALL) == "1 of total memory"


def test_reading_a_plan_needs_no_numpy() -> None:
    code = "import specdeploy.core.memory_records, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
