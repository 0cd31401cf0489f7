"""Questions to the tuner, about models and GPUs of known size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planning_models import model_named

from specdeploy.core.acceptance import flat_mix
from specdeploy.core.config import WorkloadSection
from specdeploy.core.hardware import find_gpu
from specdeploy.core.memory import GpuMemory
from specdeploy.core.tuner.question import Axes, Candidate, Question
from specdeploy.core.tuner.workload import plan_workload

SMALL_AXES = Axes.of(
    draft_length=(1, 2, 4, 8),
    max_batch_size=(1, 8, 64),
    max_num_tokens=(2048, 8192),
    draft_share=(0.0, 0.1),
    concurrency=(8,),
)


def a_draft(acceptance: float | None = 0.7, *, model: str = "Llama-3.2-1B") -> Candidate:
    """Return a draft model that is accepted so often; None: nobody knows how often."""
    mixed = None if acceptance is None else flat_mix(acceptance)
    return Candidate(model, "draft_target", model_named(model), acceptance=mixed)


def a_question(
    *candidates: Candidate,
    gpu: str = "h200",
    load: dict[str, Any] | None = None,
    **changes: Any,  # noqa: ANN401 - whatever a question has
) -> Question:
    """Return a 70B target in fp8 on one GPU, 8 requests in flight unless ``load`` says other."""
    card = find_gpu(gpu)
    section = {"input_len": 1024, "output_len": 256, "concurrency": 8, **(load or {})}
    question = Question(
        target=model_named("Llama-3.1-70B"),
        candidates=candidates,
        gpu=card,
        memory=GpuMemory.of(card),
        workload=plan_workload(WorkloadSection.model_validate(section)),
        precision="fp8",
    )
    return replace(question, **changes)
