"""Models of known shape to plan with, from the recorded configurations."""

from __future__ import annotations

from functools import cache

from checkpoint_files import FACTS, config_of

from specdeploy.core.checkpoint import CheckpointContents
from specdeploy.core.describe import describe_checkpoint
from specdeploy.core.models import ModelSpec


@cache
def model_named(part: str) -> ModelSpec:
    """Return the first recorded model whose name has ``part``, such as ``Llama-3.1-70B``."""
    facts = next(facts for facts in FACTS if part in facts["name"])
    return describe_checkpoint(CheckpointContents(name=part, config=config_of(facts)))


def stored_in(spec: ModelSpec, method: str, *, bits: int) -> ModelSpec:
    """Return ``spec`` as a checkpoint quantized by ``method``."""
    return describe_checkpoint(
        CheckpointContents(
            name=spec.name,
            config={
                **config_of(next(facts for facts in FACTS if spec.name in facts["name"])),
                "quantization_config": {"quant_method": method, "bits": bits},
            },
        )
    )
