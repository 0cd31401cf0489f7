"""What the tests of the llmapi shape share: a deployment, a rendered repository."""

from __future__ import annotations

from pathlib import Path

from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.core.build import EnginePaths
from specdeploy.core.deployment import Deployment, ModelUse, ResolvedLimits
from specdeploy.core.models import ModelSpec
from specdeploy.core.repository import RepositoryPlan
from specdeploy.runtimes.reference_llmapi import plan_llmapi_repository


def a_spec(name: str) -> ModelSpec:
    """Facts that the llmapi shape's plan does not read."""
    return ModelSpec(
        name=name,
        architecture="LlamaForCausalLM",
        model_type="llama",
        hidden_size=64,
        layers=2,
        attention_heads=2,
        kv_heads=2,
        head_dim=32,
        vocab_size=512,
        context_length=2048,
        dtype="float32",
        tie_word_embeddings=False,
        parameters=1,
    )


def a_deployment(**changes: object) -> Deployment:
    """A draft_target deployment of the llmapi shape, four requests of 512 tokens."""
    target, draft = (
        ModelUse(path=f"/models/{name}", spec=a_spec(name), precision="fp32")
        for name in ("target", "draft")
    )
    return Deployment(
        target=target,
        draft=draft,
        method="draft_target",
        runtime="reference",
        shape="llmapi",
        draft_length=4,
        limits=ResolvedLimits(max_batch_size=4, max_seq_len=512, max_num_tokens=2048),
    ).evolve(**changes)


def a_plan(pair: Path, **changes: object) -> RepositoryPlan:
    """The plan of a deployment whose engines are ``pair/target`` and ``pair/draft``."""
    deployment = a_deployment(**changes)
    draft = str(pair / "draft") if deployment.method == "draft_target" else None
    return plan_llmapi_repository(
        deployment, engines=EnginePaths(target=str(pair / "target"), draft=draft)
    )


def write_repository(root: Path, plan: RepositoryPlan) -> Path:
    """Render a plan into ``root`` and return it."""
    for path, content in StrictRenderer(template_root()).render(plan):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return root
