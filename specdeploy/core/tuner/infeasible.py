"""Why nothing is feasible, and what would be."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from specdeploy.core.memory import plan_memory
from specdeploy.core.tuner.evaluate import MEMORY_REASONS, REASONS, TOO_LONG, memory_request
from specdeploy.core.tuner.question import Axes, Fixed, Question
from specdeploy.core.tuner.search import Found, search
from specdeploy.core.tuner.space import variants
from specdeploy.core.tuner.workload import Limits
from specdeploy.errors import InfeasiblePlanError

_SHOWN: Final = 3
_SHORTER: Final = "lower workload.input_len, workload.output_len or --max-seq-len"


def nothing_fits(question: Question, axes: Axes, found: Found) -> InfeasiblePlanError:
    """Return the error that names the binding constraint and what would fit."""
    lost = [reason for reason in REASONS[1:] if found.rejected.get(reason)]
    if not lost:
        return _too_few_gpus(question)
    if any(reason not in MEMORY_REASONS for reason in lost):
        return _too_slow(question, axes, lost)
    return _too_large(question, axes)


def _too_few_gpus(question: Question) -> InfeasiblePlanError:
    tp = question.fixed.target_tp
    return InfeasiblePlanError(
        f"the target at tp {tp} needs {tp} GPUs, and {question.gpu_count} may be used",
        hint=f"pass --tp {question.gpu_count}, or set hardware.count",
    )


def _too_slow(question: Question, axes: Axes, lost: list[str]) -> InfeasiblePlanError:
    """Memory would do: search again without limits, and tell what can be reached."""
    binding = next(reason for reason in reversed(lost) if reason not in MEMORY_REASONS)
    if binding == TOO_LONG:
        return InfeasiblePlanError(f"nothing fits: {binding}", hint=_SHORTER)
    load = replace(question.workload, limits=Limits(), request_rate=None)
    free = search(replace(question, workload=load), axes).best
    if free is None:
        return InfeasiblePlanError(f"nothing fits: {binding}", hint=_sizes(question))
    return InfeasiblePlanError(
        f"nothing fits: {binding}",
        hint=f"the best without limits takes {free.e2e_ms:.0f} ms per request and answers "
        f"{free.requests_per_s:.2f} requests per second with {free.concurrency} in flight; "
        "allow more time, more GPUs (hardware.count), or less load",
    )


def _too_large(question: Question, axes: Axes) -> InfeasiblePlanError:
    """Plan the smallest server of the widest target, and pass on what memory suggests."""
    open_question = replace(question, candidates=(), allow_lossy=True)
    smallest = [v for v in variants(open_question) if v.candidate.method == "none"][-1]
    plan = plan_memory(
        replace(
            memory_request(question, smallest),
            max_batch_size=axes.max_batch_size[0],
            max_num_tokens=axes.max_num_tokens[0],
        )
    )
    ways = [suggestion.message for suggestion in plan.suggestions[:_SHOWN]]
    return InfeasiblePlanError(
        f"nothing fits on {question.gpu_count} x {question.gpu.name}: {plan.binding.message}",
        hint="; or ".join(ways) or _sizes(question),
    )


def _sizes(question: Question) -> str:
    if question.fixed == Fixed():
        return "take more or larger GPUs (--gpu, hardware.count), or a lower --precision"
    return "leave more sizes open (auto), or take more GPUs (hardware.count)"
