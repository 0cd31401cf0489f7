"""KV bytes per token and GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_files import config_of, facts_of, spec_of
from hypothesis import given
from hypothesis import strategies as st

from specdeploy.core.inspection import inspect_model
from specdeploy.core.kv_cache import (
    KV_BITS,
    heads_per_gpu,
    kv_bytes_per_token,
    resolve_kv_dtype,
)
from specdeploy.core.models import KvLayers, KvWidth, ModelSpec
from specdeploy.errors import CheckpointError, ConfigError


def layers(kv_heads: int = 8, values: int = 256, count: int = 32) -> list[KvLayers]:
    return [KvLayers(layers=count, width=KvWidth(kv_heads=kv_heads, values_per_head=values))]


@pytest.mark.parametrize(
    ("heads", "tp", "expected"), [(8, 1, 8), (8, 4, 2), (8, 8, 1), (8, 16, 1), (1, 4, 1), (3, 3, 1)]
)
def test_kv_heads_are_split_or_copied_over_gpus(heads: int, tp: int, expected: int) -> None:
    assert heads_per_gpu(heads, tp) == expected


@pytest.mark.parametrize(("heads", "tp"), [(3, 2), (8, 3), (8, 12), (4, 7), (4, 14)])
def test_heads_and_gpus_of_which_neither_divides_the_other_are_refused(heads: int, tp: int) -> None:
    with pytest.raises(ConfigError, match=f"{heads} KV heads cannot be spread over tp {tp}"):
        heads_per_gpu(heads, tp)


@given(heads=st.integers(1, 128), tp=st.integers(1, 128))
def test_all_gpus_together_hold_at_least_every_head(heads: int, tp: int) -> None:
    if heads % tp == 0 or tp % heads == 0:
        assert heads <= heads_per_gpu(heads, tp) * tp <= max(heads, tp)


@pytest.mark.parametrize(
    ("kv_dtype", "expected"),
    [
        ("fp32", 262_144),
        ("bf16", 131_072),
        ("fp16", 131_072),
        ("fp8", 65_536),
        ("int8", 65_536),
        ("nvfp4", 32_768),
        ("fp4", 32_768),
    ],
)
def test_bytes_follow_the_type_of_the_cache(kv_dtype: str, expected: int) -> None:
    assert kv_bytes_per_token(layers(), kv_dtype=kv_dtype) == expected


def test_mistral_7b_at_tp_4_takes_32768_bytes() -> None:
    assert kv_bytes_per_token(layers(), kv_dtype="fp16", tp=4) == 32_768


@pytest.mark.parametrize(
    ("kv_heads", "count", "expected"), [(2, 28, 28_672), (32, 32, 524_288), (8, 32, 131_072)]
)
def test_sizes_agree_with_server_logs(kv_heads: int, count: int, expected: int) -> None:
    assert kv_bytes_per_token(layers(kv_heads, 256, count), kv_dtype="fp16") == expected


def test_an_odd_number_of_4_bit_values_is_rounded_up() -> None:
    assert kv_bytes_per_token(layers(1, 3, 1), kv_dtype="fp4") == 2


def declaring(folder: Path, **quantization: object) -> ModelSpec:
    config = config_of(facts_of("meta-llama/Llama-3.1-8B"))
    return spec_of(folder, config, quantization_config=quantization)


def test_auto_is_16_bit_when_only_the_weights_are_quantized(tmp_path: Path) -> None:
    spec = declaring(tmp_path, quant_method="fp8")
    found = inspect_model(spec, path="x")
    assert (found.kv_dtype, found.kv_bytes_per_token) == ("bf16", 131_072)


@pytest.mark.parametrize(
    ("declared", "kv_dtype", "expected"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8", 65_536),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8", 65_536),
        ({"kv_cache_quant_algo": "FP8"}, "fp8", 65_536),
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4", 32_768),
        ({"kv_cache_quant_algo": None}, "bf16", 131_072),
        ({"kv_cache_scheme": None}, "bf16", 131_072),
    ],
)
def test_auto_takes_the_kv_type_that_the_checkpoint_declares(
    declared: dict[str, object], kv_dtype: str, expected: int, tmp_path: Path
) -> None:
    found = inspect_model(declaring(tmp_path, quant_method="x", **declared), path="x")
    assert (found.kv_dtype, found.kv_bytes_per_token) == (kv_dtype, expected)


def test_an_asked_kv_type_wins_over_the_declared_one(tmp_path: Path) -> None:
    spec = declaring(tmp_path, quant_method="x", kv_cache_quant_algo="FP8")
    assert resolve_kv_dtype("bf16", spec) == "bf16"


def test_a_declared_kv_type_that_is_not_known_is_refused(tmp_path: Path) -> None:
    spec = declaring(tmp_path, quant_method="x", kv_cache_quant_algo="FP5")
    with pytest.raises(CheckpointError, match="fp5"):
        inspect_model(spec, path="x")


def test_a_kv_type_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"auto, {', '.join(KV_BITS)}"):
        resolve_kv_dtype("fp5", declaring(tmp_path, quant_method="fp8"))


def test_heads_that_tp_cannot_split_are_noted(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, config_of(facts_of("Qwen/Qwen2.5-7B-Instruct")))
    notes = inspect_model(spec, path="x", tp=8).notes
    assert "28 attention heads cannot be split over tp 8" in notes
