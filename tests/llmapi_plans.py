"""Deployments of the LLM API runtime, and what is asked of a release about them."""

from __future__ import annotations

import pytest
from llmapi_support import a_deployment
from releases import profile_for

from specdeploy.core.deployment import Deployment, LlmApiSettings, TunedServing
from specdeploy.core.hardware import find_gpu
from specdeploy.core.models import KvLayers, KvWidth, QuantizationSpec
from specdeploy.core.releases import DecidedVersion, Release
from specdeploy.core.schedule import ScheduleTier
from specdeploy.errors import ConfigError
from specdeploy.runtimes.llmapi_config import LlmPlan, plan_llm
from specdeploy.runtimes.llmapi_question import LlmQuestion, Speculation, question


def a_release(version: str) -> Release:
    """A release that the settings name."""
    profile = profile_for(version)
    decided = DecidedVersion(version=version, decided_by="config", profile=profile.name)
    return Release(decided=decided, profile=profile)


def served(**changes: object) -> Deployment:
    """A bf16 pair on the LLM API: four requests of 512 tokens, draft length 4."""
    pair = a_deployment(runtime="llmapi")
    spec = pair.target.spec.evolve(dtype="bfloat16")
    target = pair.target.evolve(precision="bf16", spec=spec)
    return pair.evolve(target=target).evolve(**changes)


def with_target(deployment: Deployment, **changes: object) -> Deployment:
    """The deployment with its target served in another way."""
    return deployment.evolve(target=deployment.target.evolve(**changes))


def with_settings(**changes: object) -> Deployment:
    """The pair with settings of the LLM API."""
    lossy = {"relaxed_topk", "relaxed_delta", "posterior_threshold"} & set(changes)
    return served(llmapi=LlmApiSettings().evolve(**changes), allow_lossy=bool(lossy))


def tuned(*tiers: tuple[int, int, int], **changes: object) -> Deployment:
    """The pair for 32 requests, with a schedule of (first batch, last batch, draft length)."""
    pair = served(**changes)
    limits = pair.limits.evolve(max_batch_size=32)
    found = [ScheduleTier(from_batch=a, to_batch=b, draft_length=k) for a, b, k in tiers]
    return pair.evolve(limits=limits, tuned=TunedServing(tiers=found))


def latent(deployment: Deployment) -> Deployment:
    """The deployment with a target that keeps one latent head per layer (MLA)."""
    layers = KvLayers(layers=2, width=KvWidth(kv_heads=1, values_per_head=576))
    spec = deployment.target.spec.evolve(kv_layers=[layers])
    return with_target(deployment, spec=spec)


def quantized(method: str) -> Deployment:
    """The pair with a target that is stored quantized."""
    pair = served()
    spec = pair.target.spec.evolve(quantization=QuantizationSpec(method=method))
    return with_target(pair, spec=spec)


def asked_of(
    version: str,
    deployment: Deployment | None = None,
    *,
    method: str | None = "draft_target",
    sm: int | None = 90,
) -> LlmQuestion:
    """Ask a release; a method that loads nothing has no draft."""
    pair = (deployment or served()).evolve(gpu=find_gpu(f"custom:80000:{sm / 10}") if sm else None)
    loads = method in {"draft_target", "eagle3", "pard", "dflash"}
    draft = "/models/draft" if loads else None
    spec = Speculation(method, pair.draft_length, draft) if method else None
    return question(pair, a_release(version), "/models/target", spec)


def planned(
    version: str,
    deployment: Deployment | None = None,
    *,
    method: str | None = "draft_target",
    sm: int | None = 90,
) -> LlmPlan:
    """Plan the arguments that :func:`asked_of` asks for."""
    return plan_llm(asked_of(version, deployment, method=method, sm=sm))


def refusal(
    deployment: Deployment,
    *,
    version: str = "1.2.0",
    method: str | None = "draft_target",
    sm: int | None = 90,
) -> str:
    """Return why a release does not serve this, and the way out."""
    with pytest.raises(ConfigError) as caught:
        planned(version, deployment, method=method, sm=sm)
    return f"{caught.value}; {caught.value.hint}"
