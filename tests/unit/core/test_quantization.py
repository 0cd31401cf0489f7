"""How checkpoints declare quantization, and the bytes that follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_files import config_of, facts_of, read, spec_of, write_config, write_json

from specdeploy.core.models import ModelSpec, QuantizationSpec

LLAMA_70B = 70_553_706_496
TABLES = 2 * 128_256 * 8192


def llama_70b(folder: Path, **changes: object) -> ModelSpec:
    return spec_of(folder, config_of(facts_of("meta-llama/Llama-3.1-70B")), **changes)


def quantization_of(spec: ModelSpec) -> QuantizationSpec:
    assert spec.quantization is not None
    return spec.quantization


def test_8_bit_weights_keep_embedding_and_head_in_16_bit(tmp_path: Path) -> None:
    spec = llama_70b(tmp_path, quantization_config={"quant_method": "fp8"})
    assert spec.weight_bytes == LLAMA_70B + TABLES
    assert round(spec.weight_bytes / 2**30, 2) == 67.67


@pytest.mark.parametrize(("name", "gib"), [("Qwen/Qwen2.5-7B", 8.1), ("Qwen/Qwen2.5-32B", 32.0)])
def test_8_bit_weights_of_posted_set_ups(name: str, gib: float, tmp_path: Path) -> None:
    declared = {"quant_algo": "W8A16"}
    spec = spec_of(tmp_path, config_of(facts_of(name)), quantization_config=declared)
    assert spec.weight_bytes is not None
    assert round(spec.weight_bytes / 2**30, 1) == gib


def test_4_bit_groups_count_their_scales(tmp_path: Path) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    spec = llama_70b(tmp_path, quantization_config=awq)
    assert spec.weight_bytes == (LLAMA_70B - TABLES) * (4 * 128 + 16) // 128 // 8 + 2 * TABLES
    assert quantization_of(spec).group_size == 128


def test_mxfp4_converts_the_routed_experts_only(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, config_of(facts_of("openai/gpt-oss-20b")))
    experts = 19_110_297_600
    assert spec.breakdown is not None
    assert spec.breakdown.experts == experts
    assert spec.weight_bytes == experts * 17 // 32 + 2 * (20_914_757_184 - experts)


def test_the_target_being_quantized_says_nothing_of_the_draft(tmp_path: Path) -> None:
    head = {"hidden_size": 5120, "intermediate_size": 25600, "num_attention_heads": 64}
    config = config_of(facts_of("EAGLE3 head for Qwen3-8B"))
    spec = spec_of(tmp_path, config, **head)
    assert spec.quantization is None
    assert spec.weight_bytes is not None
    assert round(spec.weight_bytes / 2**30, 2) == 1.46


def test_a_separate_modelopt_file_is_read(tmp_path: Path) -> None:
    write_config(tmp_path)
    quantization = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
        "exclude_modules": ["lm_head"],
    }
    write_json(tmp_path / "hf_quant_config.json", {"quantization": quantization})
    found = quantization_of(read(tmp_path))
    assert (found.method, found.bits, found.group_size, found.kv_dtype) == ("nvfp4", 4, 16, "fp8")
    assert found.unconverted == ["lm_head"]


def weights(bits: int) -> dict[str, object]:
    return {"weights": {"num_bits": bits, "group_size": 64}}


@pytest.mark.parametrize(
    ("declared", "method", "bits"),
    [
        ({"quant_method": "fbgemm_fp8"}, "fbgemm_fp8", 8),
        ({"quant_method": "gptq", "bits": 8}, "gptq", 8),
        ({"load_in_4bit": True, "quant_method": "bitsandbytes"}, "bitsandbytes", 4),
        ({"load_in_8bit": True}, "bitsandbytes", 8),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": weights(4)}},
            "compressed-tensors",
            4,
        ),
        (
            {"quant_method": "x", "config_groups": {"a": weights(4), "b": weights(8)}},
            "x",
            None,
        ),
        ({"quant_method": "brand-new"}, "brand-new", None),
        ({"bits": 8}, "unknown", 8),
    ],
)
def test_every_way_to_declare_quantization_is_read(
    declared: dict[str, object], method: str, bits: int | None, tmp_path: Path
) -> None:
    found = quantization_of(spec_of(tmp_path, quantization_config=declared))
    assert (found.method, found.bits) == (method, bits)


def test_weights_of_unknown_width_have_no_made_up_size(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, quantization_config={"quant_method": "brand-new"})
    assert spec.weight_bytes is None


def test_attention_that_is_listed_as_not_converted_stays_in_16_bit(tmp_path: Path) -> None:
    fp8 = {"quant_method": "fp8"}
    whole = llama_70b(tmp_path / "whole", quantization_config=fp8)
    listed = {**fp8, "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    part = llama_70b(tmp_path / "part", quantization_config=listed)
    assert part.breakdown is not None
    assert part.weight_bytes is not None
    assert whole.weight_bytes is not None
    assert part.weight_bytes - whole.weight_bytes == part.breakdown.attention
