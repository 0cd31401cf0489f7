"""Is the draft worth having, and can the runtime and the GPU serve the pair?"""

from __future__ import annotations

import pytest
from pairs import REFERENCE, a_head, a_member, a_model, ask, codes, found

from specdeploy.core.compat import CompatReport
from specdeploy.core.hardware import find_gpu
from specdeploy.core.models import QuantizationSpec, RopeSpec
from specdeploy.errors import IncompatiblePairError


def test_a_draft_as_large_as_the_target_is_a_warning() -> None:
    report = ask(draft=a_member("draft", model=a_model(parameters=10_000_000)))
    finding = found(report, "draft-not-smaller")
    assert (finding.severity, report.verdict) == ("warning", "compatible")


@pytest.mark.parametrize(
    "same", [{"path": "/target"}, {"weights": "digest"}], ids=["path", "weights"]
)
def test_the_same_weights_twice_are_a_warning(same: dict[str, object]) -> None:
    report = ask(target=a_member("target", weights="digest"), draft=a_member("draft", **same))
    assert "same-model" in codes(report, "warning")


def test_other_weights_are_another_model() -> None:
    report = ask(target=a_member("target", weights="x"), draft=a_member("draft", weights="y"))
    assert "same-model" not in codes(report)


def test_a_target_that_takes_images_serves_text_only() -> None:
    report = ask(target=a_member("target", model=a_model(multimodal=True, parameters=10**8)))
    assert "multimodal-model" in codes(report, "warning")
    assert report.verdict == "compatible"


def test_a_draft_that_is_not_needed_is_a_warning() -> None:
    report = ask(draft=None, draft_unused=True, method="ngram")
    assert codes(report) == {"draft-not-used"}


def test_the_runtime_says_which_methods_it_serves() -> None:
    head = a_member("draft", model=a_model(head=a_head()))
    report = ask(draft=head, method="eagle3", runtime=REFERENCE)
    finding = found(report, "method-not-served")
    assert finding.severity == "error"
    assert finding.facts["methods"] == ["none", "draft_target", "ngram"]
    assert "draft_target" in (finding.hint or "")


def test_without_a_runtime_the_pair_alone_is_judged() -> None:
    head = a_member("draft", model=a_model(head=a_head()))
    assert ask(draft=head, method="eagle3").verdict == "compatible"


def quantized(method: str, **changes: object) -> CompatReport:
    model = a_model(quantization=QuantizationSpec(method=method), parameters=10**8)
    return ask(target=a_member("target", model=model), **changes)


def test_the_reference_runtime_serves_no_quantized_weights() -> None:
    finding = found(quantized("awq", runtime=REFERENCE), "precision-not-served")
    assert finding.facts["side"] == "target"
    assert finding.hint == "it serves: fp32, bf16, fp16"


def test_weights_as_stored_are_served() -> None:
    assert "precision-not-served" not in codes(ask(runtime=REFERENCE))


@pytest.mark.parametrize("gpu", ["a100", "a10", "custom:49140:8.6"])
def test_fp8_needs_sm_89(gpu: str) -> None:
    finding = found(quantized("fp8", gpu=find_gpu(gpu)), "gpu-precision-unsupported")
    assert finding.severity == "error"
    assert "needs SM 8.9 or more" in finding.message
    assert finding.facts["needed_sm"] == 89


@pytest.mark.parametrize("gpu", ["l40s", "rtx-6000-ada", "h100", "b200"])
def test_fp8_is_fine_from_sm_89_on(gpu: str) -> None:
    assert "gpu-precision-unsupported" not in codes(quantized("fp8", gpu=find_gpu(gpu)))


def test_nvfp4_needs_blackwell() -> None:
    assert "gpu-precision-unsupported" in codes(quantized("nvfp4", gpu=find_gpu("h200")))
    assert "gpu-precision-unsupported" not in codes(quantized("nvfp4", gpu=find_gpu("b200")))


def test_the_precision_asked_for_counts_and_not_the_stored_one() -> None:
    target = a_member("target", precision="fp8")
    assert "gpu-precision-unsupported" in codes(ask(target=target, gpu=find_gpu("a100")))
    halves = {
        side: a_member(side, model=a_model(parameters=n), precision="fp16")
        for side, n in (("target", 10**7), ("draft", 10**6))
    }
    assert "gpu-precision-unsupported" not in codes(ask(**halves, gpu=find_gpu("v100")))


def test_bf16_needs_ampere() -> None:
    assert "gpu-precision-unsupported" in codes(ask(gpu=find_gpu("t4")))


def test_llama3_rope_needs_trtllm_0_12() -> None:
    model = a_model(rope=RopeSpec(kind="llama3", factor=8.0), parameters=10**8)
    target = a_member("target", model=model)
    finding = found(ask(target=target, trtllm_version="0.11.0"), "rope-needs-newer-trtllm")
    assert finding.hint == "use TensorRT-LLM 0.12 or newer"
    for version in ("0.12.0", "1.2.0", None):
        assert "rope-needs-newer-trtllm" not in codes(ask(target=target, trtllm_version=version))


def test_a_usable_pair_with_warnings_is_refused_only_when_strict() -> None:
    report = ask(draft_length=0)
    report.raise_if_blocking()
    with pytest.raises(IncompatiblePairError, match=r"refused by --strict.*draft-length-zero"):
        report.raise_if_blocking(strict=True)


def test_information_blocks_nothing() -> None:
    target = a_member("target", model=a_model(kv_heads=1), tp=2)
    report = ask(target=target, draft=None, method="none")
    assert codes(report) == {"kv-heads-copied"}
    report.raise_if_blocking(strict=True)


def test_an_error_blocks_and_is_named() -> None:
    report = ask(draft_length=17, runtime=REFERENCE)
    with pytest.raises(IncompatiblePairError, match="incompatible: draft-length-too-long"):
        report.raise_if_blocking()
