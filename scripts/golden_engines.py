"""The engine commands of a usual pair by release; `scripts/golden` writes and compares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from specdeploy.adapters.release_files import read_release_profiles
from specdeploy.core.deployment import Deployment, ModelUse, ResolvedLimits
from specdeploy.core.models import ModelSpec
from specdeploy.core.releases import find_release
from specdeploy.runtimes.engine_commands import EnginePlan, plan_engines

VERSIONS: Final = ("0.16.0", "0.19.0", "1.0.0", "1.2.1")


def engine_command_files() -> dict[str, str]:
    """Return the commands for Llama-3.3-70B in FP8 on two GPUs with Llama-3.2-1B as its draft."""
    profiles = read_release_profiles()
    return {
        f"{version}.txt": "\n".join(_told(plan_engines(_pair(), find_release(version, profiles))))
        for version in VERSIONS
    }


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
