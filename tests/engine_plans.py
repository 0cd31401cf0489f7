"""Deployments, plans and repositories of the engine shape."""

from __future__ import annotations

from pathlib import Path

from releases import profile_for

from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.core.build import EnginePaths
from specdeploy.core.deployment import Deployment, ModelUse, ResolvedLimits
from specdeploy.core.models import ModelSpec, SpecialIds
from specdeploy.core.releases import DecidedVersion, Release
from specdeploy.core.repository import RepositoryPlan
from specdeploy.runtimes.reference import ReferenceRuntime


def a_spec(name: str = "tiny", *, end_ids: tuple[int, ...] = (257,)) -> ModelSpec:
    """Facts of a small Llama; the engine shape reads its end ids only."""
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
        special_ids=SpecialIds(generation_eos=list(end_ids)),
    )


def a_deployment(
    pair: Path = Path("/models"),
    *,
    precision: str = "fp32",
    end_ids: tuple[int, ...] = (257,),
    **changes: object,
) -> Deployment:
    """Serve ``pair/target`` and ``pair/draft``: draft_target, four requests of 1,024 tokens."""
    target, draft = (
        ModelUse(path=str(pair / name), spec=a_spec(name, end_ids=end_ids), precision=precision)
        for name in ("target", "draft")
    )
    deployment = Deployment(
        target=target,
        draft=draft,
        method="draft_target",
        runtime="reference",
        shape="engine",
        draft_length=4,
        limits=ResolvedLimits(max_batch_size=4, max_seq_len=1024, max_num_tokens=4096),
    ).evolve(**changes)
    if deployment.method == "draft_target":
        return deployment
    length = 0 if deployment.method == "none" else deployment.draft_length
    return deployment.evolve(draft=None, draft_length=length)


def a_trtllm_deployment(
    version: str = "1.2.1", *, method: str = "draft_target", **changes: object
) -> Deployment:
    """Serve the pair, in bf16, by TensorRT engines of a release."""
    deployment = a_deployment(precision="bf16", method=method, runtime="engine")
    decided = DecidedVersion(version=version, decided_by="config", profile="")
    release = Release(decided=decided, profile=profile_for(version))
    return deployment.evolve(release=release, **changes)


def a_plan(deployment: Deployment) -> RepositoryPlan:
    """The repository of a deployment whose engines are its checkpoints."""
    draft = deployment.draft
    engines = EnginePaths(target=deployment.target.path, draft=draft.path if draft else None)
    return ReferenceRuntime().plan_repository(deployment, engines=engines)


def rendered(plan: RepositoryPlan, *, must_exist: bool = False) -> dict[str, str]:
    """Every file of a repository, by its path inside."""
    files = StrictRenderer(template_root()).render(plan, must_exist=must_exist)
    return {path: content.decode() for path, content in files}


def write_repository(folder: Path, plan: RepositoryPlan) -> Path:
    """Write a repository into ``folder`` and return it."""
    for path, content in rendered(plan, must_exist=True).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    for directory in plan.directories:
        (folder / directory).mkdir(parents=True, exist_ok=True)
    return folder
