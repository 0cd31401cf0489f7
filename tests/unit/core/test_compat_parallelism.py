"""Can each model be split over its GPUs?"""

from __future__ import annotations

import pytest
from pairs import a_member, a_model, ask, codes, found

from specdeploy.core.compat import CompatReport, usable_tp
from specdeploy.core.models import QuantizationSpec


def target_only(tp: int, **model: object) -> CompatReport:
    return ask(target=a_member("target", model=a_model(**model), tp=tp), draft=None, method="none")


def test_heads_that_tp_does_not_divide_are_an_error_with_the_usable_tp() -> None:
    report = target_only(8, attention_heads=28, kv_heads=4)
    finding = found(report, "heads-not-divisible")
    assert report.verdict == "incompatible"
    assert "28 attention heads mod tp 8 is 4" in finding.message
    assert finding.facts["usable_tp"] == [1, 2, 4]
    assert finding.facts["usable_tp_with_copied_kv_heads"] == [28]
    assert finding.hint == "usable tp: 1, 2, 4; with copied KV heads: 28"


@pytest.mark.parametrize("tp", [7, 14])
def test_kv_heads_must_divide_tp_or_be_divided_by_it(tp: int) -> None:
    report = target_only(tp, attention_heads=28, kv_heads=4)
    assert codes(report, "error") == {"kv-heads-not-divisible"}


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_tp_that_divides_both_is_fine(tp: int) -> None:
    assert target_only(tp, attention_heads=28, kv_heads=4).findings == []


def test_more_gpus_than_kv_heads_copy_them() -> None:
    report = target_only(8, attention_heads=32, kv_heads=2)
    assert codes(report) == {"kv-heads-copied"}
    assert report.verdict == "compatible"


def test_a_single_kv_head_can_be_copied_to_every_divisor() -> None:
    assert usable_tp(a_model(attention_heads=8, kv_heads=1)) == ([1], [2, 4, 8])


def quantized(width: int, tp: int, group: int | None = 128) -> CompatReport:
    quantization = QuantizationSpec(method="awq", bits=4, group_size=group)
    draft = a_model(
        attention_heads=width // 64,
        kv_heads=2,
        hidden_size=width,
        intermediate_size=1024,
        quantization=quantization,
    )
    return ask(draft=a_member("draft", model=draft, tp=tp))


def test_a_group_that_tp_would_split_is_an_error() -> None:
    finding = found(quantized(896, 2), "quantization-group-split")
    assert finding.facts["remainder"] == 64
    assert "448 mod group 128 is 64" in finding.message
    assert "tp 1" in (finding.hint or "")


@pytest.mark.parametrize(("width", "tp"), [(1536, 2), (896, 1)])
def test_whole_groups_are_fine(width: int, tp: int) -> None:
    assert "quantization-group-split" not in codes(quantized(width, tp))


@pytest.mark.parametrize("group", [None, -1])
def test_scales_without_groups_cannot_be_split(group: int | None) -> None:
    assert "quantization-group-split" not in codes(quantized(896, 2, group))


def test_the_down_projection_counts_too() -> None:
    quantization = QuantizationSpec(method="gptq", bits=4, group_size=128)
    report = target_only(2, intermediate_size=384, quantization=quantization)
    assert found(report, "quantization-group-split").facts["layer"] == "mlp"


def test_each_model_is_checked_at_its_own_tp() -> None:
    target, draft = a_model(attention_heads=8, kv_heads=8), a_model(attention_heads=2, kv_heads=2)
    report = ask(
        target=a_member("target", model=target, tp=8), draft=a_member("draft", model=draft, tp=2)
    )
    assert codes(report, "error") == set()
