"""Is the draft worth having, and can the runtime and the GPU serve the pair?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from specdeploy.core.compat.codes import finding
from specdeploy.core.compat.question import Member, PairQuestion, Side
from specdeploy.core.findings import Finding
from specdeploy.core.models import PRECISION_OF_DTYPE

# Lowest compute capability (x 10) that computes in the precision.
LOWEST_SM: Final = {"nvfp4": 100, "fp8": 89, "bf16": 80}
# First TensorRT-LLM release (major, minor) that reads the rope kind.
ROPE_SINCE: Final = {"llama3": (0, 12)}


def check_models(question: PairQuestion) -> Iterator[Finding]:
    """Compare the models as wholes, and each with the runtime and the GPU."""
    yield from _usefulness(question)
    yield from _runtime(question)
    for side, member in question.members:
        yield from _images(side, member, question.method)
        yield from _gpu(side, member, question)
        yield from _rope(side, member, question.trtllm_version)


def _usefulness(question: PairQuestion) -> Iterator[Finding]:
    if question.draft_unused:
        yield finding(
            "draft-not-used", f"method {question.method} needs no draft; the one given is ignored"
        )
    draft = question.whole_draft
    if draft is None:
        return
    target = question.target
    if draft.path == target.path or (draft.weights and draft.weights == target.weights):
        yield finding("same-model", "target and draft are the same weights: no gain is possible")
    elif draft.model.parameters >= target.model.parameters:
        yield finding(
            "draft-not-smaller",
            f"the draft has {draft.model.parameters} parameters, the target "
            f"{target.model.parameters}",
            draft_parameters=draft.model.parameters,
            target_parameters=target.model.parameters,
        )


def _images(side: Side, member: Member, method: str) -> Iterator[Finding]:
    if member.model.multimodal and method != "none":
        yield finding(
            "multimodal-model",
            f"the {side} takes images; speculation serves text requests only",
            side=side,
        )


def _runtime(question: PairQuestion) -> Iterator[Finding]:
    runtime = question.runtime
    if runtime is None:
        return
    if question.method not in runtime.methods:
        served = ", ".join(runtime.methods)
        yield finding(
            "method-not-served",
            f"runtime {runtime.name} cannot serve method {question.method}",
            hint=f"it serves: {served}",
            method=question.method,
            runtime=runtime.name,
            methods=runtime.methods,
        )
    for side, member in question.members:
        precision = _precision(member)
        if runtime.precisions and precision not in runtime.precisions:
            yield finding(
                "precision-not-served",
                f"runtime {runtime.name} cannot serve the {side} in {precision}",
                hint=f"it serves: {', '.join(runtime.precisions)}",
                side=side,
                precision=precision,
                precisions=runtime.precisions,
            )


def _precision(member: Member) -> str:
    """As asked for; else as quantized; else as stored."""
    if member.precision != "auto":
        return member.precision
    if member.model.quantization is not None:
        return member.model.quantization.method
    return PRECISION_OF_DTYPE.get(member.model.dtype, member.model.dtype)


def _gpu(side: Side, member: Member, question: PairQuestion) -> Iterator[Finding]:
    gpu, precision = question.gpu, _precision(member)
    if gpu is None:
        return
    family = next((name for name in LOWEST_SM if name in precision.lower()), None)
    if family is not None and gpu.sm < LOWEST_SM[family]:
        needed, found = LOWEST_SM[family] / 10, gpu.sm / 10
        yield finding(
            "gpu-precision-unsupported",
            f"the {side} in {precision} needs SM {needed} or more; {gpu.name} has {found}",
            side=side,
            precision=precision,
            needed_sm=LOWEST_SM[family],
            sm=gpu.sm,
            gpu=gpu.name,
        )


def _rope(side: Side, member: Member, version: str | None) -> Iterator[Finding]:
    kind = member.model.rope.kind
    match = re.match(r"(\d+)\.(\d+)", version or "")
    if match is None or kind not in ROPE_SINCE:
        return
    since = ROPE_SINCE[kind]
    if (int(match[1]), int(match[2])) < since:
        needed = ".".join(map(str, since))
        yield finding(
            "rope-needs-newer-trtllm",
            f"the {side} scales positions in the {kind} way; TensorRT-LLM {version} cannot",
            hint=f"use TensorRT-LLM {needed} or newer",
            side=side,
            rope=kind,
            needed=needed,
        )
