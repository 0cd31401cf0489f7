"""A model's bytes follow from its shape, precision and parallelism."""

from __future__ import annotations

import pytest
from planning_models import model_named, stored_in

from specdeploy.core.models import ModelSpec, ParameterBreakdown, QuantizationSpec
from specdeploy.core.precision import PRECISIONS, find_precision, stored_precision
from specdeploy.core.served import serve_model
from specdeploy.errors import ConfigError

GIB = 1024**3


@pytest.mark.parametrize(
    ("name", "precision", "tp", "gib"),
    [
        ("Llama-3.1-70B", "bf16", 2, 65.71),
        ("Llama-3.1-70B", "bf16", 4, 32.85),
        ("Llama-3.1-70B", "fp8", 1, 67.67),
        ("Llama-3.1-8B", "bf16", 1, 14.96),
        ("Qwen2.5-7B", "int8", 1, 8.1),
        ("Qwen2.5-32B", "w8a16", 1, 32.0),
        ("Qwen2.5-32B", "bf16", 4, 15.26),
    ],
)
def test_weights_take_what_users_measured(name: str, precision: str, tp: int, gib: float) -> None:
    served = serve_model(model_named(name), precision=precision, tp=tp)
    assert served.weight_bytes / GIB == pytest.approx(gib, abs=0.06)


def test_group_scales_are_counted() -> None:
    spec = model_named("Llama-3.1-8B")
    kept = 2 * 128_256 * 4096
    rest = spec.parameters - kept
    assert serve_model(spec, precision="int4-awq").weight_bytes == (
        rest * 4 // 8 + rest // 128 * 2 + kept * 2
    )
    assert serve_model(spec, precision="nvfp4").weight_bytes == (
        rest * 4 // 8 + rest // 16 + kept * 2
    )


def test_a_quantized_checkpoint_keeps_its_own_size() -> None:
    spec = stored_in(model_named("Llama-3.1-8B"), "fp8", bits=8)
    as_stored = serve_model(spec)
    assert as_stored.weight_bytes == spec.weight_bytes
    assert (as_stored.precision.name, as_stored.precision.unit) == ("fp8", "fp8")
    assert serve_model(spec, precision="fp8") == as_stored


@pytest.mark.parametrize(
    ("method", "bits", "asked"),
    [("w4a8_awq", 4, "w4a8"), ("nvfp4", 4, "nvfp4"), ("w8a8_sq_per_channel", 8, "int8_sq")],
)
def test_asking_for_the_stored_format_changes_nothing(method: str, bits: int, asked: str) -> None:
    spec = stored_in(model_named("Llama-3.1-8B"), method, bits=bits)
    assert serve_model(spec, precision=asked) == serve_model(spec)


def test_another_format_than_the_stored_one_is_another_checkpoint() -> None:
    plain = model_named("Llama-3.1-8B")
    stored = stored_in(plain, "fp8", bits=8)
    for precision in ("nvfp4", "bf16"):
        assert (
            serve_model(stored, precision=precision).weight_bytes
            == serve_model(plain, precision=precision).weight_bytes
        )


def test_parameters_of_an_unknown_layout_are_all_quantized() -> None:
    spec = model_named("Llama-3.1-8B").evolve(breakdown=None)
    assert serve_model(spec, precision="fp8").weight_bytes == spec.parameters


def test_unknown_bits_of_a_checkpoint_count_as_sixteen() -> None:
    spec = model_named("Llama-3.1-8B").evolve(
        quantization=QuantizationSpec(method="mystery"), weight_bytes=None
    )
    assert stored_precision(spec).weight_bits == 16
    assert serve_model(spec).weight_bytes >= spec.parameters * 2 - 2


def test_bytes_are_per_gpu() -> None:
    spec = model_named("Llama-3.1-8B").evolve(state_bytes_per_sequence=1001)
    one, four = serve_model(spec), serve_model(spec, tp=4)
    assert four.weight_bytes == one.weight_bytes // 4
    assert four.kv_bytes_per_token == one.kv_bytes_per_token // 4
    assert four.state_bytes_per_sequence == 251


def test_windowed_layers_stop_growing() -> None:
    spec = model_named("gpt-oss-20b")
    served = serve_model(spec)
    assert served.kv_bytes_per_token_full * 2 == served.kv_bytes_per_token


def test_every_spelling_finds_its_format() -> None:
    assert {find_precision(name).name for name in PRECISIONS} == set(PRECISIONS)
    assert find_precision("INT4-AWQ").name == "int4_awq"
    assert find_precision("int8").name == "int8_wo"
    assert find_precision("w4a8").unit == "fp8"
    with pytest.raises(ConfigError, match="precision 'fp7' is not one of"):
        find_precision("fp7")


def test_weight_only_formats_multiply_in_sixteen_bit() -> None:
    assert {name for name, form in PRECISIONS.items() if form.unit == "half"} == {
        "fp32",
        "bf16",
        "fp16",
        "int8_wo",
        "int4_wo",
        "int4_awq",
    }


def test_the_breakdown_says_what_stays_in_sixteen_bit() -> None:
    parts = ParameterBreakdown(embedding=10, lm_head=6, attention=50, mlp=30, other=4)
    spec = model_named("Llama-3.1-8B").evolve(parameters=100, breakdown=parts)
    assert isinstance(spec, ModelSpec)
    assert serve_model(spec, precision="fp8").weight_bytes == 84 + 2 * 16
