"""Memory cases that users reported, with the numbers of the reports."""

from __future__ import annotations

from dataclasses import replace

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
    weighing,
    weightless,
)
from planning_models import model_named

from specdeploy.core.memory import (
    NO_WORKSPACE,
    GpuMemory,
    KvFractions,
    MemoryLimit,
    MemoryPlan,
    MemoryRequest,
    plan_memory,
)
from specdeploy.core.models import KvLayers, KvWidth
from specdeploy.core.served import ServedModel, ServedPair, serve_model
from specdeploy.units import GIB


def pool_plan(
    model: ServedModel, size: float, length: int, *, block: int, limit: MemoryLimit = ALL
) -> MemoryPlan:
    """Return the plan of one request of ``length`` in a pool of ``size`` bytes."""
    return plan_memory(
        MemoryRequest(
            alone(weightless(model)),
            exactly(size),
            length,
            limit=limit,
            max_batch_size=1,
            tokens_per_block=block,
            workspace=NO_WORKSPACE,
        )
    )


def test_a_fraction_is_of_what_is_free_after_loading() -> None:
    """NVIDIA/TensorRT-LLM#2789: 17,524 blocks of 64 tokens in 0.4 of 74.87 GiB."""
    model = served("Qwen2.5-1.5B")
    plan = pool_plan(model, 74.87 * GIB, 2048, block=64, limit=MemoryLimit.of_free(0.4))
    assert model.kv_bytes_per_token == 28_672
    assert plan.target.tokens // 64 == pytest.approx(17_524, abs=1)


def loaded_one_after_the_other(share: float) -> MemoryRequest:
    """An 8B draft, then a 70B target, each with the same fraction, on 80 GiB."""
    target = weighing(served("Llama-3.1-70B", tp=4), 32.85)
    pair = drafting(replace(target, tp=1), weighing(served("Llama-3.1-8B"), 14.96))
    return MemoryRequest(
        pair,
        exactly(80 * GIB),
        2048,
        fractions=KvFractions(share, share),
        workspace=NO_WORKSPACE,
        max_batch_size=1,
    )


@pytest.mark.parametrize(("share", "draft_pool", "free"), [(0.9, 58.54, 6.50), (0.5, 32.52, 32.52)])
def test_the_model_loaded_first_starves_the_second(
    share: float, draft_pool: float, free: float
) -> None:
    plan = plan_memory(loaded_one_after_the_other(share))
    assert part(plan.gpus[0], "draft KV pool") / GIB == pytest.approx(draft_pool, abs=0.01)
    assert not plan.fits
    assert plan.max_resident == 0
    assert plan.binding.constraint == "weights"
    assert plan.binding.missing_bytes / GIB == pytest.approx(32.85 - free, abs=0.01)
    assert "the target takes 35,272,418,918 bytes when it loads" in plan.binding.message
    assert "after the draft and its pool" in plan.binding.message
    assert plan.gpus[0].headroom_bytes < 0
    assert changes(plan)["fractions"] == "equal tokens"


def test_a_small_fraction_leaves_room_for_the_second_model() -> None:
    plan = plan_memory(loaded_one_after_the_other(0.2))
    assert plan.fits
    assert part(plan.gpus[0], "draft KV pool") / GIB == pytest.approx(13.01, abs=0.01)
    assert part(plan.gpus[0], "target KV pool") / GIB == pytest.approx(3.84, abs=0.01)
    assert plan.target.kv_cache_free_gpu_mem_fraction == 0.2
    assert plan.max_resident == plan.target.tokens // 2048


def test_the_order_of_loading_decides_who_starves() -> None:
    request = replace(loaded_one_after_the_other(0.9), load_order="target_first")
    plan = plan_memory(request)
    assert "the draft takes" in plan.binding.message
    assert "after the target and its pool" in plan.binding.message


def test_a_model_that_loads_first_and_does_not_fit_blames_no_pool() -> None:
    request = replace(loaded_one_after_the_other(0.9), gpu=exactly(10 * GIB))
    message = plan_memory(request).binding.message
    assert message.startswith("GPU 0: the draft takes 16,063,177,687 bytes when it loads")
    assert "pool" not in message


def test_fractions_too_small_for_one_request_bind_at_the_request() -> None:
    plan = plan_memory(loaded_one_after_the_other(0.001))
    assert not plan.fits
    assert plan.binding.constraint == "request"


def test_token_capacity_counts_both_models() -> None:
    """NVIDIA/TensorRT-LLM pull 3497: 20 GiB hold 59,578 tokens of both, not 65,536."""
    pair = drafting(weightless(served("Llama-3.1-70B")), weightless(served("Llama-3.2-1B")))
    plan = plan_memory(
        MemoryRequest(
            pair,
            exactly(20 * GIB),
            1024,
            limit=ALL,
            tokens_per_block=1,
            max_batch_size=65_536,
            workspace=NO_WORKSPACE,
        )
    )
    assert plan.draft is not None
    assert (plan.target.tokens, plan.draft.tokens) == (59_578, 59_578)
    pools = [part(plan.gpus[0], f"{role} KV pool") for role in ("draft", "target")]
    assert pools[0] / sum(pools) == pytest.approx(0.0909, abs=1e-4)


def test_a_pool_below_one_sequence_is_refused_with_the_length_that_fits() -> None:
    """tensorrtllm_backend#366: 29,184 tokens, one sequence may need 272 blocks of 128."""
    model = served("Mistral-7B-v0.3", "fp16", tp=4, kv="fp16")
    plan = pool_plan(replace(model, tp=1), 956_301_312, 34_816, block=128)
    assert (model.kv_bytes_per_token, plan.target.tokens) == (32_768, 29_184)
    assert (plan.target.request_blocks, plan.target.request_bytes) == (272, 1_140_850_688)
    assert not plan.fits
    assert plan.binding.constraint == "request"
    assert "1,140,850,688 bytes" in plan.binding.message
    assert "29,184 tokens" in plan.binding.message
    assert plan.gpus[0].headroom_bytes == 956_301_312 - 1_140_850_688
    assert plan.binding.missing_bytes == 1_140_850_688 - 956_301_312
    assert (plan.largest_context, changes(plan)["context"]) == (29_184, 29_184)


def test_a_pool_below_one_sequence_names_the_smallest_fraction_that_works() -> None:
    """tensorrtllm_backend#168: 1,664 of 2,560 tokens at fraction 0.2."""
    free = 872_415_232 * 5
    model = serve_model(
        model_named("Llama-2-70b").evolve(
            kv_layers=[KvLayers(layers=32, width=KvWidth(kv_heads=32, values_per_head=256))]
        )
    )
    plan = pool_plan(model, free, 2560, block=128, limit=MemoryLimit.of_free(0.2))
    assert plan.target.bytes_per_token == 524_288
    assert (plan.target.tokens, plan.target.request_bytes) == (1_664, 1_342_177_280)
    assert not plan.fits
    share = changes(plan)["memory_limit"]
    assert share == pytest.approx(1_342_177_280 / free, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("Qwen3-4B", 147_456), ("Qwen3-32B", 262_144), ("Qwen3-30B-A3B", 98_304)],
)
def test_a_stated_head_dim_sets_the_pool(name: str, tokens: int) -> None:
    assert pool_plan(served(name), 40 * GIB, 1024, block=64).target.bytes_per_token == tokens


def test_sliding_layers_count_inside_their_window() -> None:
    """alvarobartt/hf-mem#60: 5.38 GiB hold 78,352 tokens (logged 78,384, from rounded input)."""
    plan = pool_plan(served("openai/gpt-oss-120b"), 5.38 * GIB, 128, block=1)
    assert plan.target.bytes_per_token == 73_728
    assert plan.target.tokens == pytest.approx(78_352, abs=1)


def test_a_hybrid_model_keeps_a_state_beside_its_few_attention_layers() -> None:
    """gpustack/gguf-parser-go#28: KV on every fourth of 64 layers, 65,536 bytes per token."""
    spec = model_named("Qwen3-32B").evolve(
        kv_layers=[KvLayers(layers=16, width=KvWidth(kv_heads=4, values_per_head=512))],
        state_bytes_per_sequence=150_000_000,
    )
    plan = pool_plan(serve_model(spec), 1.2 * GIB, 8192, block=32)
    assert plan.target.bytes_per_token == 65_536
    assert plan.target.request_bytes == 65_536 * 8192 + 150_000_000
    assert plan.max_resident == 1
    assert "target: linear-attention layers keep a fixed state per request" in plan.notes


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Mixtral-8x7B", 46_702_792_704),
        ("Qwen3-30B-A3B", 30_532_122_624),
        ("gemma-2-2b", 2_614_341_888),
    ],
)
def test_every_expert_and_a_tied_embedding_once_are_resident(name: str, parameters: int) -> None:
    plan = pool_plan(served(name), 120 * GIB, 1024, block=64)
    assert plan.fits
    pair = alone(served(name))
    whole = plan_memory(MemoryRequest(pair, exactly(120 * GIB), 1024, workspace=NO_WORKSPACE))
    assert part(whole.gpus[0], "target weights") == 2 * parameters


def large_pair(*, draft: bool) -> ServedPair:
    """vllm-project/vllm#8731: 32B at tp 4, and a 7B draft on one of the four."""
    target = served("Qwen2.5-32B", tp=4)
    return drafting(target, served("Qwen2.5-7B")) if draft else alone(target)


@pytest.mark.parametrize(
    ("draft", "left", "tokens"), [(True, 6.16, 53_800), (False, 20.35, 333_000)]
)
def test_a_draft_on_one_of_the_targets_gpus_bounds_the_pool(
    *, draft: bool, left: float, tokens: int
) -> None:
    plan = plan_memory(
        MemoryRequest(
            large_pair(draft=draft),
            exactly(39.56 * GIB),
            4096,
            limit=MemoryLimit.of_total(0.9),
            max_batch_size=1024,
            workspace=NO_WORKSPACE,
        )
    )
    pools = [
        sum(line.bytes for line in ledger.components if "KV" in line.name) for ledger in plan.gpus
    ]
    assert pools[0] / GIB == pytest.approx(left, abs=0.02)
    assert plan.target.tokens == pytest.approx(tokens, rel=0.003)
    assert plan.binding.gpu == 0
    if draft:
        assert pools[1] == pools[2] == pools[3] < pools[0]
        assert "the draft is on the first GPUs" in plan.notes[-1]


def of_70b(length: int, limit: MemoryLimit) -> MemoryPlan:
    """vllm-project/vllm#10517: a 70B in 16 bit on two GPUs of 80 GiB."""
    return plan_memory(
        MemoryRequest(
            alone(served("Llama-3.1-70B", tp=2)),
            exactly(80 * GIB),
            length,
            limit=limit,
            workspace=NO_WORKSPACE,
        )
    )


def test_the_context_of_the_config_does_not_fit_and_a_usual_one_does() -> None:
    whole = of_70b(131_072, MemoryLimit.of_total(0.9))
    assert part(whole.gpus[1], "target weights") / GIB == pytest.approx(65.71, abs=0.01)
    assert not whole.fits
    assert whole.target.request_bytes == 20 * GIB
    assert whole.largest_context == changes(whole)["context"]
    assert whole.largest_context == pytest.approx(41_200, abs=32)
    usual = of_70b(20_000, MemoryLimit.of_total(0.9))
    assert usual.fits
    assert usual.max_resident == 2
    assert usual.target.request_bytes / GIB == pytest.approx(3.05, abs=0.01)


def test_a_share_of_free_memory_holds_more_than_one_of_the_total() -> None:
    plan = of_70b(20_000, MemoryLimit.of_free(0.9))
    assert plan.max_resident == 4
    assert plan.target.tokens == pytest.approx(84_300, abs=50)


def test_the_draft_keeps_its_own_precision() -> None:
    target, draft = served("Qwen3-32B", "fp8"), served("Qwen3-1.7B")
    plan = plan_memory(MemoryRequest(drafting(target, draft), known("h100"), 4096, draft_length=3))
    formulas = {line.name: line.formula for line in plan.gpus[0].components}
    assert "in fp8 / tp 1" in formulas["target weights"]
    assert "in bf16 / tp 1" in formulas["draft weights"]


def test_room_for_draft_tokens_counts_in_a_sequence() -> None:
    """triton-inference-server/tutorials pull 150: 65 blocks of 32 for 2048 + 3."""
    model = served("TinyLlama", "fp16", kv="fp16")
    request = MemoryRequest(
        ServedPair(weightless(model), method="ngram"),
        exactly(3_731_744 * 22_528),
        2048,
        limit=ALL,
        draft_length=3,
        max_batch_size=60_000,
        workspace=NO_WORKSPACE,
    )
    plan = plan_memory(request)
    assert plan.target.bytes_per_token == 22_528
    assert plan.target.request_blocks == 65
    assert (plan.target.tokens // 32, plan.target.tokens) == (116_617, 3_731_744)
    assert request.gpus[0].total_bytes / GIB == pytest.approx(78.30, abs=0.01)


def test_a_pool_is_rounded_down_to_blocks() -> None:
    """NVIDIA/TensorRT-LLM#224: 10,718 tokens in blocks of 16."""
    model = replace(served("Llama-3.1-8B"), kv_bytes_per_token_full=524_288)
    plan = pool_plan(model, 10_718 * 524_288, 4096, block=16)
    assert (plan.target.tokens, plan.target.tokens // 16) == (10_704, 669)


def test_planning_starts_from_what_others_leave() -> None:
    """NVIDIA/TensorRT-LLM#1188: other processes hold 3 of 24 GiB."""
    pair = alone(served("Llama-3.1-8B"))
    taken = GpuMemory(24 * GIB, other_bytes=3 * GIB)
    plan = plan_memory(MemoryRequest(pair, taken, 4096))
    free = plan_memory(MemoryRequest(pair, GpuMemory(24 * GIB), 4096))
    assert part(plan.gpus[0], "other processes") == 3 * GIB
    assert plan.target.tokens < free.target.tokens
    lost = (free.target.tokens - plan.target.tokens) * plan.target.bytes_per_token
    assert lost / GIB == pytest.approx(0.9 * 3, abs=0.01)
