"""What speaks against a planned pair is told from shapes and the GPU alone."""

from __future__ import annotations

import pytest
from planning_models import model_named

from specdeploy.core.compat import Member, doubts_of
from specdeploy.core.hardware import find_gpu


def doubts(target: str, draft: str | None, *, gpu: str = "h100", precision: str = "auto") -> str:
    members = [
        None if name is None else Member(path=name, model=model_named(name), precision=precision)
        for name in (target, draft)
    ]
    assert members[0] is not None
    return "\n".join(doubts_of(members[0], members[1], find_gpu(gpu)))


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ("Llama-3.1-8B", "Llama-3.2-1B"),
        ("Qwen2.5-72B", "Qwen2.5-0.5B"),
        ("meta-llama/Llama-3.1-8B", "EAGLE3 head for Llama-3.1-8B"),
        ("Llama-3.1-8B", None),
    ],
)
def test_nothing_speaks_against_a_pair_that_belongs_together(target: str, draft: str) -> None:
    assert doubts(target, draft) == ""


def test_a_draft_with_another_vocabulary_is_doubted() -> None:
    told = doubts("Llama-3.1-8B", "Qwen2.5-0.5B")
    assert told == (
        "the draft has 151,936 token ids and the target 128,256: they seem to have different "
        "tokenizers"
    )


def test_a_draft_larger_than_its_target_is_doubted() -> None:
    assert "parameters, the target" in doubts("Llama-3.1-8B", "Llama-3.1-70B")


def test_a_gpu_that_does_not_compute_in_the_precision_is_doubted() -> None:
    told = doubts("Llama-3.1-8B", None, gpu="v100", precision="fp8")
    assert told == "the target in fp8 needs SM 8.9 or more; v100-32gb has 7.0"
