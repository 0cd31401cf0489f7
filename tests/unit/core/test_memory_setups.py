"""Whole set-ups that users posted, and deployments that were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from memory_plans import alone, changed, changes, drafting, exactly, known, part, served

from specdeploy.core.memory import (
    NO_WORKSPACE,
    KvFractions,
    MemoryLimit,
    MemoryRequest,
    plan_memory,
)
from specdeploy.core.served import ServedModel, serve_model
from specdeploy.units import GIB


def test_each_model_of_an_fp8_pair_on_a_gpu_of_its_own() -> None:
    """NVIDIA/TensorRT-LLM#2671: the 70B leaves 72,700 tokens of an 80 GiB card."""
    target = served("Llama-3.1-70B", "fp8", kv="fp8")
    draft = served("Llama-3.1-8B", "fp8", kv="fp8")
    request = MemoryRequest(
        drafting(target, draft, apart=True),
        exactly(80 * GIB),
        3072,
        max_batch_size=1,
        workspace=NO_WORKSPACE,
    )
    plan = plan_memory(request)
    assert part(plan.gpus[0], "target weights") / GIB == pytest.approx(67.67, abs=0.01)
    assert plan.target.bytes_per_token == 163_840
    assert plan.target.tokens == pytest.approx(72_700, abs=100)
    assert len(plan.gpus) == 2
    names = {line.name for line in plan.gpus[1].components}
    assert "draft weights" in names
    assert "target weights" not in names
    assert plan.draft is not None
    assert plan.draft.tokens > plan.target.tokens


def test_both_models_spread_over_the_same_gpus() -> None:
    """tensorrtllm_backend#498: 8B and 70B at tp 4 take 114,688 bytes per token and GPU."""
    target, draft = (served(name, "fp16", tp=4) for name in ("Llama-3.1-70B", "Llama-3.1-8B"))
    request = MemoryRequest(
        drafting(target, draft), exactly(80 * GIB), 2048, workspace=NO_WORKSPACE
    )
    plan = plan_memory(request)
    assert plan.draft is not None
    assert (plan.target.bytes_per_token, plan.draft.bytes_per_token) == (81_920, 32_768)
    for ledger in plan.gpus:
        assert part(ledger, "target weights") / GIB == pytest.approx(32.85, abs=0.01)
        assert part(ledger, "draft weights") / GIB == pytest.approx(3.74, abs=0.01)
    free = 0.9 * (80 - 32.854 - 3.740) * GIB
    assert plan.target.tokens == pytest.approx(free / 114_688, abs=300)


def test_windows_bound_what_a_long_request_keeps() -> None:
    """NVIDIA/TensorRT-LLM#2804: gemma-2 2b and 27b, window 4096 under 6400 tokens."""
    spec = changed(
        "google/gemma-2-9b",
        hidden_size=4608,
        num_hidden_layers=46,
        num_attention_heads=32,
        num_key_value_heads=16,
        head_dim=128,
        intermediate_size=36_864,
    )
    assert spec.parameters == 27_227_128_320
    pair = drafting(serve_model(spec), served("gemma-2-2b"))
    plan = plan_memory(MemoryRequest(pair, known("a100"), 6400, max_batch_size=8))
    assert plan.draft is not None
    assert (plan.target.bytes_per_token, plan.draft.bytes_per_token) == (376_832, 106_496)
    assert part(plan.gpus[0], "target weights") / GIB == pytest.approx(50.71, abs=0.01)
    assert part(plan.gpus[0], "draft weights") / GIB == pytest.approx(4.87, abs=0.01)
    half = 106_496 // 2
    assert plan.draft.request_bytes == half * 6400 + half * (4096 + 32)
    assert sum("window" in note for note in plan.notes) == 2


def test_two_small_fractions_on_one_card() -> None:
    """tensorrtllm_backend#720: Qwen2.5 7B and 32B in int8, fraction 0.1 each, one A100."""
    target, draft = served("Qwen2.5-32B", "w8a16"), served("Qwen2.5-7B", "w8a16")
    plan = plan_memory(
        MemoryRequest(drafting(target, draft), known("a100"), 2048, fractions=KvFractions(0.1, 0.1))
    )
    assert part(plan.gpus[0], "target weights") / GIB == pytest.approx(32.0, abs=0.1)
    assert part(plan.gpus[0], "draft weights") / GIB == pytest.approx(8.1, abs=0.1)
    assert plan.fits


def test_a_70b_in_16_bit_is_not_on_one_80_gib_card() -> None:
    """tensorrtllm_backend#676: 131.4 GiB of weights; quantized, or on two GPUs, it fits."""
    plan = plan_memory(MemoryRequest(alone(served("Llama-3.1-70B")), known("h100"), 4096))
    assert not plan.fits
    assert part(plan.gpus[0], "target weights") / GIB == pytest.approx(131.4, abs=0.1)
    assert plan.binding.constraint == "weights"
    assert (plan.largest_context, plan.max_resident) == (0, 0)
    assert changes(plan) == {"precision": "fp8", "gpus": 2}


# Model, GPU, precision, tp, attention data parallelism, most clients, most tokens per request:
# the deployments with tp up to 8 of AIConfigurator's published measurements, rows of one kind
# taken together.
MEASURED = [
    ("Qwen/Qwen3-235B-A22B", "h100_sxm", "fp8", 4, 1, 128, 5000),
    ("Qwen/Qwen3-235B-A22B", "h100_sxm", "fp8", 8, 1, 128, 1536),
    ("Qwen3-32B", "gb200", "bf16", 2, 1, 144, 2500),
    ("Qwen3-32B", "gb200", "nvfp4", 4, 1, 384, 5000),
    ("Qwen3-32B", "h100_sxm", "fp8", 1, 1, 128, 5000),
    ("Qwen3-32B", "h100_sxm", "fp8", 2, 1, 128, 4608),
    ("Qwen3-32B", "h100_sxm", "fp8", 4, 1, 128, 5000),
    ("Qwen3-32B", "h100_sxm", "fp8", 8, 1, 224, 5000),
    ("DeepSeek-R1", "b200_sxm", "nvfp4", 4, 1, 256, 5000),
    ("DeepSeek-R1", "b200_sxm", "nvfp4", 8, 1, 256, 9216),
    ("DeepSeek-R1", "b200_sxm", "fp8", 1, 8, 32, 9216),
    ("DeepSeek-R1", "b200_sxm", "fp8", 8, 1, 256, 9216),
    ("DeepSeek-R1", "gb200", "nvfp4", 8, 1, 28, 5000),
    ("DeepSeek-R1", "h200_sxm", "fp8", 1, 8, 32, 9216),
    ("DeepSeek-R1", "h200_sxm", "fp8", 1, 64, 4, 9216),
    ("DeepSeek-R1", "h200_sxm", "fp8", 8, 1, 128, 9216),
    ("DeepSeek-V3", "b200_sxm", "nvfp4", 1, 16, 16, 9216),
    ("DeepSeek-V3", "b200_sxm", "nvfp4", 4, 1, 256, 9216),
    ("DeepSeek-V3", "b200_sxm", "nvfp4", 8, 1, 256, 9216),
    ("DeepSeek-V3", "b200_sxm", "fp8", 4, 1, 16, 9216),
    ("DeepSeek-V3", "b200_sxm", "fp8", 8, 1, 256, 9216),
    ("DeepSeek-V3", "h200_sxm", "fp8", 8, 1, 64, 9216),
    ("Llama-3.1-70B", "b200_sxm", "nvfp4", 1, 1, 128, 9216),
    ("Llama-3.1-70B", "b200_sxm", "fp8", 1, 1, 128, 2048),
    ("Llama-3.1-70B", "b200_sxm", "fp8", 4, 1, 128, 9216),
    ("Llama-3.1-70B", "h200_sxm", "fp8", 1, 1, 128, 9216),
    ("Llama-3.1-70B", "h200_sxm", "fp8", 8, 1, 128, 9216),
    ("Llama-3.1-8B", "h100_sxm", "bf16", 1, 1, 128, 4608),
    ("Llama-3.1-8B", "h100_sxm", "bf16", 8, 1, 128, 4608),
    ("openai/gpt-oss-120b", "b200_sxm", "nvfp4", 1, 1, 256, 9216),
    ("openai/gpt-oss-120b", "b200_sxm", "nvfp4", 1, 4, 64, 9216),
    ("openai/gpt-oss-120b", "b200_sxm", "nvfp4", 8, 1, 64, 9216),
    ("openai/gpt-oss-120b", "h100_sxm", "fp8", 2, 1, 160, 5000),
    ("openai/gpt-oss-120b", "h200_sxm", "nvfp4", 2, 1, 64, 9216),
]


def replicated(model: ServedModel, ranks: int) -> ServedModel:
    """Return a model whose experts alone are spread over GPUs that answer requests apart."""
    parts = model.spec.breakdown
    assert parts is not None
    spread = model.weight_bytes * parts.experts // model.spec.parameters
    return replace(model, weight_bytes=model.weight_bytes - spread + spread // ranks)


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: "-".join(map(str, row)))
def test_a_deployment_that_was_measured_is_possible(
    row: tuple[str, str, str, int, int, int, int],
) -> None:
    name, gpu, precision, tp, ranks, clients, tokens = row
    model = served(name, precision, tp=tp)
    if ranks > 1:
        model = replicated(model, ranks)
    batch = -(-clients // ranks)
    for limit in (MemoryLimit.of_free(0.9), MemoryLimit.of_total(0.95)):
        plan = plan_memory(
            MemoryRequest(alone(model), known(gpu), tokens, max_batch_size=batch, limit=limit)
        )
        assert plan.fits, plan.binding.message
