"""LLM API repositories of usual pairs by release; `scripts/golden` writes and compares them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from specdeploy.adapters.release_files import read_release_profiles
from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.core.build import EnginePaths
from specdeploy.core.deployment import Deployment, ModelUse, ResolvedLimits, TunedServing
from specdeploy.core.hardware import find_gpu
from specdeploy.core.models import ModelSpec, QuantizationSpec
from specdeploy.core.releases import Release, decide_version, find_release
from specdeploy.core.repository import Method, RepositoryPlan
from specdeploy.core.schedule import ScheduleTier
from specdeploy.runtimes.llmapi import LlmApiRuntime

VERSIONS: Final = ("1.0.0", "1.2.1", "1.4.0rc4")
PAIRS: Final[dict[str, tuple[str, str, Method]]] = {
    "llama-3.3-70b": ("Llama-3.3-70B-Instruct-FP8", "Llama-3.2-1B-Instruct", "draft_target"),
    "qwen2.5-72b": ("Qwen2.5-72B-Instruct", "Qwen2.5-0.5B-Instruct", "draft_target"),
    "qwen2.5-72b-lookup": ("Qwen2.5-72B-Instruct", "", "ngram"),
}


def llmapi_files() -> dict[str, str]:
    """Return what is rendered for each pair and release, and the plan's other words."""
    profiles = read_release_profiles()
    found: dict[str, str] = {}
    for version in VERSIONS:
        decided = decide_version(version, None, None, profiles=profiles)
        release = Release(decided=decided, profile=find_release(version, profiles))
        for name, pair in PAIRS.items():
            found |= _files(f"{version}/{name}", _deployment(*pair).evolve(release=release))
    return found


def _files(folder: str, deployment: Deployment) -> dict[str, str]:
    draft = deployment.draft.path if deployment.draft else None
    engines = EnginePaths(target=deployment.target.path, draft=draft)
    plan = LlmApiRuntime().plan_repository(deployment, engines=engines)
    rendered = dict(StrictRenderer(template_root()).render(plan, must_exist=False))
    files = {item.path: rendered[item.path].decode() for item in plan.renders}
    files["plan.txt"] = "".join(f"{line}\n" for line in _told(plan))
    return {f"{folder}/{path.rpartition('/')[2]}": text for path, text in files.items()}


def _told(plan: RepositoryPlan) -> Iterator[str]:
    yield shlex.join(plan.serve_command)
    yield from (f"note: {note}" for note in plan.notes)


def _deployment(target: str, draft: str, method: Method) -> Deployment:
    """Serve on two H100 with a schedule that slows down and stops."""
    tiers = [(1, 4, 5), (5, 16, 3), (17, 32, 0)]
    found = [ScheduleTier(from_batch=a, to_batch=b, draft_length=k) for a, b, k in tiers]
    return Deployment(
        target=_use(target, tp=2),
        draft=_use(draft, tp=1) if draft else None,
        method=method,
        runtime="llmapi",
        shape="llmapi",
        draft_length=5,
        limits=ResolvedLimits(max_batch_size=32, max_seq_len=8192, max_num_tokens=8192),
        gpu=find_gpu("h100-sxm"),
        tuned=TunedServing(tiers=found),
    )


def _use(name: str, *, tp: int) -> ModelUse:
    """Return what the settings depend on; sizes are not read."""
    fp8 = name.endswith("FP8")
    spec = ModelSpec(
        name=name,
        architecture="",
        model_type="",
        hidden_size=0,
        layers=0,
        attention_heads=0,
        kv_heads=0,
        head_dim=0,
        vocab_size=0,
        context_length=131072,
        dtype="bfloat16",
        tie_word_embeddings=False,
        parameters=0,
        quantization=QuantizationSpec(method="fp8") if fp8 else None,
    )
    kv_dtype = "fp8" if fp8 else "auto"
    return ModelUse(path=f"/path/to/{name}", spec=spec, precision="bf16", kv_dtype=kv_dtype, tp=tp)
