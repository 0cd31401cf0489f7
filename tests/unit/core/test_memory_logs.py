"""Plans against the memory that published server logs state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from memory_plans import alone, changed, exactly, known, part, served, weightless
from planning_models import model_named

from specdeploy.core.memory import (
    NO_WORKSPACE,
    GpuMemory,
    MemoryLimit,
    MemoryPlan,
    MemoryRequest,
    Workspace,
    plan_memory,
)
from specdeploy.core.served import ServedModel, serve_model
from specdeploy.units import GIB, MIB


def llama_2_7b() -> ServedModel:
    spec = changed(
        "meta-llama/Llama-2-70b",
        hidden_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
        intermediate_size=11_008,
    )
    return serve_model(spec, precision="fp8", kv_dtype="fp8")


@pytest.fixture(scope="module")
def guide() -> MemoryPlan:
    """The log of NVIDIA's memory guide: an H100, 8192 tokens per step, 32 pages per sequence."""
    return plan_memory(
        MemoryRequest(
            alone(llama_2_7b()), known("h100"), 2048, max_batch_size=256, tokens_per_block=64
        )
    )


def test_the_parts_of_the_memory_guide(guide: MemoryPlan) -> None:
    gpu = guide.gpus[0]
    buffers = part(gpu, "target runtime buffers") + part(gpu, "target logits")
    assert part(gpu, "target weights") / MIB == pytest.approx(6695, rel=0.01)
    assert part(gpu, "target activations") / MIB == pytest.approx(1134.01, rel=0.01)
    assert buffers / MIB == pytest.approx(43.29, rel=0.01)
    assert part(gpu, "target decoder buffers") / MIB == pytest.approx(180.30, rel=0.01)


def test_the_pool_of_the_memory_guide(guide: MemoryPlan) -> None:
    assert guide.target.bytes_per_token == 262_144
    assert guide.target.tokens == pytest.approx(259_840, rel=0.005)
    cuda_total = guide.gpus[0].capacity_bytes - part(guide.gpus[0], "driver reserve")
    assert cuda_total / GIB == pytest.approx(79.10, abs=0.07)


@pytest.mark.parametrize(("name", "total"), [("h100", 79.10), ("h100-nvl", 93.10), ("a10", 22.18)])
def test_the_driver_keeps_what_cuda_does_not_show(name: str, total: float) -> None:
    assert known(name).usable_bytes / GIB == pytest.approx(total, abs=0.07)


@pytest.mark.parametrize(
    ("available", "block", "tokens"),
    [(85.57, 32, 315_488), (70.48, 64, 259_840), (1.42, 64, 5_248)],
)
def test_the_pool_that_is_left_of_stated_memory(available: float, block: int, tokens: int) -> None:
    plan = plan_memory(
        MemoryRequest(
            alone(weightless(llama_2_7b())),
            exactly(available * GIB),
            2048,
            tokens_per_block=block,
            workspace=NO_WORKSPACE,
        )
    )
    assert plan.target.tokens == pytest.approx(tokens, rel=0.0005, abs=block)


def test_requests_that_a_benchmark_states() -> None:
    """trtllm-bench: 8,048 requests of 256 tokens in 0.95 of 132.37 GiB."""
    plan = plan_memory(
        MemoryRequest(
            alone(weightless(served("Llama-3.1-8B", "fp8", kv="fp8"))),
            exactly(132.37 * GIB),
            256,
            limit=MemoryLimit.of_free(0.95),
            workspace=NO_WORKSPACE,
        )
    )
    assert plan.target.bytes_per_token == 65_536
    assert plan.max_resident == 8_048


def test_what_a_quantized_32b_leaves_of_a_small_a100() -> None:
    """A QwQ-32B engine at batch 1 and 4096 tokens leaves 20.44 of 39.49 GiB."""
    plan = plan_memory(
        MemoryRequest(
            alone(served("Qwen2.5-32B", "int4_awq")),
            GpuMemory(int(39.49 * GIB), free_bytes=int(39.49 * GIB)),
            4096,
            max_batch_size=1,
            max_num_tokens=4096,
        )
    )
    pool = plan.target.tokens * plan.target.bytes_per_token
    assert pool / 0.9 / GIB == pytest.approx(20.44, rel=0.03)


@pytest.mark.parametrize(
    ("model", "batch", "tokens", "megabytes"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", 2048, 8192, 811.1),
        ("Qwen/Qwen2.5-0.5B-Instruct", 1, 512, 45.4),
        ("Qwen/Qwen2.5-1.5B-Instruct", 2048, 8192, 966.3),
    ],
)
def test_execution_contexts_of_other_logs(
    model: str, batch: int, tokens: int, megabytes: float
) -> None:
    """Weight-only engines: within a tenth of the logged sizes, and not below them."""
    request = MemoryRequest(
        alone(served(model, "int8")),
        known("h100"),
        2048,
        max_batch_size=batch,
        max_num_tokens=tokens,
    )
    found = part(plan_memory(request).gpus[0], "target activations") / 1e6
    assert megabytes <= found <= 1.1 * megabytes


def test_buffers_of_a_large_batch_of_long_sequences() -> None:
    """NVIDIA/TensorRT-LLM#1188: 2.66 GiB of runtime buffers and 5.76 of decoder."""
    request = MemoryRequest(
        alone(served("Qwen/Qwen2.5-0.5B-Instruct", "int8")),
        known("h100"),
        32_768,
        max_batch_size=2048,
    )
    gpu = plan_memory(request).gpus[0]
    buffers = part(gpu, "target runtime buffers") + part(gpu, "target logits")
    assert buffers / GIB == pytest.approx(2.66, rel=0.01)
    assert 5.76 < part(gpu, "target decoder buffers") / GIB < 1.16 * 5.76


def test_a_draft_head_is_counted_without_the_embedding_that_it_shares() -> None:
    """vllm-project/vllm pull 40849: the EAGLE-3 head of Qwen3-32B takes 1.46 GiB."""
    spec = changed(
        "EAGLE3 head for Qwen3-8B",
        hidden_size=5120,
        intermediate_size=25_600,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        draft_vocab_size=32_000,
    )
    head = serve_model(spec, precision="bf16")
    assert head.weight_bytes / GIB == pytest.approx(1.46, abs=0.01)
    target = served("Qwen3-32B", "fp8")
    pair = replace(alone(target), draft=head, method="draft_target")
    plan = plan_memory(MemoryRequest(pair, known("h100"), 2048, max_batch_size=4, draft_length=3))
    assert part(plan.gpus[0], "draft logits") == 4 * 3 * 32_000 * 4
    assert plan.largest_context == 40_960 - 3


def test_the_document_states_every_constant() -> None:
    document = (Path(__file__).parents[3] / "docs" / "memory.md").read_text()
    for name, field in Workspace.model_fields.items():
        size = field.default
        told = f"{size // MIB} MiB" if name.endswith("_bytes") and size >= MIB else f"{size}"
        assert f"| `{name}` | {told} |" in document


def test_the_recorded_shapes_are_the_ones_of_the_logs() -> None:
    assert llama_2_7b().spec.parameters == 6_738_415_616
    assert model_named("Qwen/Qwen2.5-0.5B").vocab_size == 151_936
