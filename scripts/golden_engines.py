"""The engine commands of a usual pair by release; `scripts/golden` writes and compares them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from environment import ROOT

from specdeploy.adapters.release_files import read_release_profiles
from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.core.build import EnginePaths, InputFile
from specdeploy.core.checkpoint import CheckpointContents
from specdeploy.core.deployment import Deployment, ModelUse, ResolvedLimits
from specdeploy.core.describe import describe_checkpoint
from specdeploy.core.hardware import find_gpu
from specdeploy.core.models import ModelSpec
from specdeploy.core.release_profile import ReleaseProfile
from specdeploy.core.releases import DecidedVersion, Release, find_release
from specdeploy.runtimes.base import StepInputs
from specdeploy.runtimes.engine import EngineRuntime
from specdeploy.runtimes.engine_commands import EnginePlan, plan_engines

VERSIONS: Final = ("0.16.0", "0.19.0", "1.0.0", "1.2.1")
MODELS: Final = ROOT / "tests" / "data" / "model_configs.json"
# What the recorded facts have beside a config.json's own keys.
_NOT_IN_CONFIG: Final = frozenset(
    {
        "name",
        "role",
        "nested_text_config",
        "fields_absent_in_config",
        "computed_parameter_count",
        "kv_bytes_per_token_16bit_tp1",
    }
)


def engine_command_files() -> dict[str, str]:
    """Return the commands for Llama-3.3-70B in FP8 on two GPUs with Llama-3.2-1B as its draft."""
    profiles = read_release_profiles()
    return {
        f"{version}.txt": "\n".join(_told(plan_engines(_pair(), find_release(version, profiles))))
        for version in VERSIONS
    }


def engine_plan_files() -> dict[str, str]:
    """Return what `build --dry-run --json` plans for two usual pairs, by pair and version."""
    profiles = read_release_profiles()
    return {
        f"{name}-{version}.json": _plan_text(pair, version, find_release(version, profiles))
        for name, pair in _planned_pairs().items()
        for version in VERSIONS
    }


def engine_leaf_files() -> dict[str, str]:
    """Return the configuration of both leaf models, of the first pair at the ends of the line."""
    profiles, renderer = read_release_profiles(), StrictRenderer(template_root())
    pair = next(iter(_planned_pairs().values()))
    engines = EnginePaths(target="/path/to/engines/target", draft="/path/to/engines/draft")
    texts: dict[str, str] = {}
    for version in (VERSIONS[0], VERSIONS[-1]):
        deployment = _at(pair, version, find_release(version, profiles))
        plan = EngineRuntime().plan_repository(deployment, engines=engines)
        for path, content in renderer.render(plan, must_exist=False):
            if path.startswith("tensorrt_llm"):
                texts[f"{version}/{path}"] = content.decode()
    return texts


def _at(pair: Deployment, version: str, profile: ReleaseProfile) -> Deployment:
    decided = DecidedVersion(version=version, decided_by="config", profile=profile.name)
    return pair.evolve(release=Release(decided=decided, profile=profile))


def _plan_text(pair: Deployment, version: str, profile: ReleaseProfile) -> str:
    plan = EngineRuntime().plan_build(
        _at(pair, version, profile),
        inputs=StepInputs(target=[_source("target")], draft=[_source("draft")], tools={}),
    )
    return plan.model_dump_json(indent=2) + "\n"


def _source(role: str) -> InputFile:
    return InputFile(path=f"/path/to/{role}/tokenizer.json", size_bytes=1, sha256="0" * 64)


def _planned_pairs() -> dict[str, Deployment]:
    facts = json.loads(MODELS.read_text())
    use = partial(_recorded, facts)
    return {
        "llama-3.3-70b-fp8-tp2": _planned(
            use("Llama-3.3-70B", precision="fp8", kv_dtype="fp8", tp=2),
            use("Llama-3.2-1B", precision="bf16"),
        ),
        "qwen2.5-72b-tp4": _planned(
            use("Qwen2.5-72B", precision="bf16", tp=4), use("Qwen2.5-0.5B", precision="bf16")
        ),
    }


def _planned(target: ModelUse, draft: ModelUse) -> Deployment:
    return _pair().evolve(
        target=target,
        draft=draft,
        gpu=find_gpu("h100-sxm"),
        gpu_count=target.tp,
        trtllm_source="/path/to/TensorRT-LLM",
    )


def _recorded(
    facts: list[dict[str, Any]], part: str, *, precision: str, kv_dtype: str = "auto", tp: int = 1
) -> ModelUse:
    recorded = next(f for f in facts if part in f["name"])
    config = {key: value for key, value in recorded.items() if key not in _NOT_IN_CONFIG}
    spec = describe_checkpoint(CheckpointContents(name=recorded["name"], config=config))
    path = f"/path/to/{part}"
    return ModelUse(path=path, spec=spec, precision=precision, kv_dtype=kv_dtype, tp=tp)


def _pair() -> Deployment:
    return Deployment(
        target=ModelUse(
            path="/path/to/Llama-3.3-70B-Instruct",
            spec=_llama("Llama-3.3-70B-Instruct", layers=80, heads=64, head_dim=128),
            precision="fp8",
            kv_dtype="fp8",
            tp=2,
        ),
        draft=ModelUse(
            path="/path/to/Llama-3.2-1B-Instruct",
            spec=_llama("Llama-3.2-1B-Instruct", layers=16, heads=32, head_dim=64),
            precision="bf16",
        ),
        method="draft_target",
        runtime="engine",
        shape="engine",
        draft_length=6,
        limits=ResolvedLimits(max_batch_size=32, max_seq_len=8192, max_num_tokens=8192),
    )


def _llama(name: str, *, layers: int, heads: int, head_dim: int) -> ModelSpec:
    """Return what the commands depend on; the parameters are not counted."""
    return ModelSpec(
        name=name,
        architecture="LlamaForCausalLM",
        model_type="llama",
        hidden_size=heads * head_dim,
        layers=layers,
        attention_heads=heads,
        kv_heads=8,
        head_dim=head_dim,
        vocab_size=128256,
        context_length=131072,
        dtype="bfloat16",
        tie_word_embeddings=False,
        parameters=0,
    )


def _told(plans: Sequence[EnginePlan]) -> Iterator[str]:
    for plan in plans:
        yield f"# {plan.role}"
        for command in plan.commands:
            yield from (*_lines(command.argv), "")
        facts = plan.expected.model_dump()
        yield from (f"# {name}: {value}" for name, value in facts.items())
        for change in plan.changes:
            yield f"# {change.setting} {change.asked} becomes {change.becomes}: {change.reason}"
        yield from (f"# note: {note}" for note in plan.notes)
        yield ""


def _lines(argv: Sequence[str]) -> Iterator[str]:
    """Return a command, one option and its value a line."""
    starts = [i for i, word in enumerate(argv) if word.startswith("--")]
    ends = [*starts[1:], len(argv)]
    groups = chain([argv[: starts[0]]], (argv[a:b] for a, b in zip(starts, ends, strict=True)))
    lines = [" ".join(group) for group in groups]
    yield from (f"{'' if n == 0 else '  '}{line} \\" for n, line in enumerate(lines[:-1]))
    yield f"  {lines[-1]}"
