"""The commands that make TensorRT-LLM engines of a pair, every flag of the release spelled out.

Nothing rests on a default of ``trtllm-build``: they flipped between releases. Words may begin
with a placeholder for what only the machine knows: ``{python}``, ``{trtllm}`` (the folder of
TensorRT-LLM's sources), ``{checkpoint}`` and ``{output}`` (folders to fill) and
``{timing_cache}`` (a file to write).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from pydantic import Field

from specdeploy.core.build import BuilderChange, Role
from specdeploy.core.deployment import Deployment, ModelUse
from specdeploy.core.record import Record
from specdeploy.core.release_profile import BuildFlag, EngineMethod, ReleaseProfile, Scalar
from specdeploy.errors import ConfigError
from specdeploy.runtimes.engine_facts import (
    EngineFacts,
    Speculation,
    builder_changes,
    engine_facts,
)

# Model type -> the folder of its conversion script.
_FAMILIES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("llama", "mistral", "mixtral"), "llama"),
    **dict.fromkeys(("qwen", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), "qwen"),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), "gemma"),
    **dict.fromkeys(("phi", "phi3"), "phi"),
    "gpt2": "gpt",
}
# Options of quantize.py that decide the result and that nobody sets here.
_CALIBRATION: Final = (
    "device",
    "calib_dataset",
    "calib_size",
    "calib_max_seq_length",
    "batch_size",
    "tokenizer_max_seq_length",
    "awq_block_size",
    "seed",
)
# How 0.12 asks for a paged KV cache.
_OLD_PAGED: Final = ("paged_kv_cache", "enable")
_GEMM_PLUGINS: Final[Mapping[str, str]] = {"fp8": "disable", "nvfp4": "nvfp4"}


class EngineCommand(Record):
    """One command line, with placeholders."""

    stage: Literal["convert", "build"]
    argv: list[str]


class EnginePlan(Record):
    """How one engine is made, and what its config.json will say."""

    role: Role
    commands: list[EngineCommand]
    expected: EngineFacts
    changes: list[BuilderChange]
    notes: list[str] = Field(description="What is not certain of this release, and what to mind.")


def plan_engines(
    deployment: Deployment,
    profile: ReleaseProfile,
    *,
    sm: int | None = None,
    use_draft_logits: bool = False,
) -> list[EnginePlan]:
    """Return how the target's engine is made, and the draft's where the method has one.

    Args:
        deployment: The pair; ``limits.max_seq_len`` is what a request may use.
        profile: The release whose tools are run.
        sm: Compute capability of the GPUs times 10; None: not known, and not checked.
        use_draft_logits: Acceptance compares logits, which both engines then have to give out.

    Raises:
        ConfigError: the release has no engines, or not with this method, model, precision or
            KV type.
    """
    method = _method(deployment, profile)
    if method is None:
        return [_plan("target", deployment, Speculation(), profile, sm=sm)]
    logits = use_draft_logits and method.draft_engine
    target = Speculation(
        mode=method.mode, draft_length=deployment.draft_length, reuse=True, logits=logits
    )
    plans = [_plan("target", deployment, target, profile, sm=sm)]
    if method.draft_engine:
        draft = Speculation(reuse=True, logits=logits)
        plans.append(_plan("draft", deployment, draft, profile, sm=sm))
    return plans


def filled(argv: list[str], values: Mapping[str, str]) -> list[str]:
    """Put the machine's own paths in; ``values`` has a placeholder's name without braces."""
    return [_filled_word(word, values) for word in argv]


def _filled_word(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        if word.startswith(f"{{{name}}}"):
            return value + word.removeprefix(f"{{{name}}}")
    return word


def _method(deployment: Deployment, profile: ReleaseProfile) -> EngineMethod | None:
    if "engine" not in profile.paths:
        raise ConfigError(
            f"TensorRT-LLM {profile.name} builds no engines",
            hint="runtime llmapi serves it, or take a release up to 1.2.1",
        )
    if deployment.method == "none":
        return None
    if deployment.method not in profile.engine_methods:
        raise ConfigError(
            f"engines of TensorRT-LLM {profile.name} do not speculate by {deployment.method}",
            hint=f"they have {', '.join(profile.engine_methods)}",
        )
    return profile.engine_methods[deployment.method]


def _plan(
    role: Role,
    deployment: Deployment,
    speculation: Speculation,
    profile: ReleaseProfile,
    *,
    sm: int | None,
) -> EnginePlan:
    use = deployment.target if role == "target" else deployment.draft
    if use is None:
        raise ConfigError(f"method {deployment.method} needs a draft model")
    _require_precision(role, use, profile, sm)
    facts = engine_facts(use, deployment.limits, speculation, profile)
    decided = _decided(use, facts, usable=deployment.limits.max_seq_len, profile=profile)
    build = ["trtllm-build", *_spelled_out(decided, profile)]
    script, convert = _conversion(use, facts, profile)
    return EnginePlan(
        role=role,
        commands=[
            EngineCommand(stage="convert", argv=convert),
            EngineCommand(stage="build", argv=build),
        ],
        expected=facts,
        changes=list(builder_changes(deployment.limits, facts)),
        notes=[
            *_notes(use, script, profile, decided=set(decided)),
            *_length_notes(facts, deployment.limits.max_seq_len),
        ],
    )


def _require_precision(role: Role, use: ModelUse, profile: ReleaseProfile, sm: int | None) -> None:
    release = f"TensorRT-LLM {profile.name}"
    if use.spec.quantization is not None:
        raise ConfigError(
            f"the {role}'s weights are quantized already ({use.spec.quantization.method})",
            hint="engines are made from 16-bit checkpoints here; name that one",
        )
    if use.precision not in profile.quantize_formats:
        raise ConfigError(
            f"{role}.precision is {use.precision}, which engines of {release} do not have",
            hint=f"they have {', '.join(profile.quantize_formats)}",
        )
    if sm is not None and sm not in profile.precisions[use.precision].engine:
        fit = [n for n in profile.quantize_formats if sm in profile.precisions[n].engine]
        raise ConfigError(
            f"{role}.precision is {use.precision}, which engines of {release} do not have on "
            f"SM {sm}",
            hint=f"there they have {', '.join(fit) or 'none'}",
        )


def _decided(
    use: ModelUse, facts: EngineFacts, *, usable: int, profile: ReleaseProfile
) -> dict[str, Scalar]:
    """Return the flags of the build that follow from the deployment."""
    paged = ("kv_cache_type", "paged") if "kv_cache_type" in profile.flags else _OLD_PAGED
    return {
        "checkpoint_dir": "{checkpoint}",
        "output_dir": "{output}",
        "output_timing_cache": "{timing_cache}",
        "workers": use.tp,
        "max_batch_size": facts.max_batch_size,
        "max_beam_width": 1,
        "max_input_len": usable,
        "max_seq_len": usable,
        "max_num_tokens": facts.max_num_tokens,
        "opt_num_tokens": min(
            facts.max_batch_size * (facts.max_draft_len + 1), facts.max_num_tokens
        ),
        paged[0]: paged[1],
        "logits_dtype": "float32",
        "gather_generation_logits": facts.gather_generation_logits,
        "speculative_decoding_mode": facts.speculative_decoding_mode,
        "max_draft_len": facts.max_draft_len,
        "gemm_plugin": _GEMM_PLUGINS.get(use.precision, "auto"),
        "context_fmha": "enable",
        "remove_input_padding": "enable",
        "tokens_per_block": facts.tokens_per_block,
        "use_paged_context_fmha": _switched(on=facts.use_paged_context_fmha),
        "use_fp8_context_fmha": _switched(on=facts.use_fp8_context_fmha),
    }


def _switched(*, on: bool) -> str:
    return "enable" if on else "disable"


def _spelled_out(decided: Mapping[str, Scalar], profile: ReleaseProfile) -> Iterator[str]:
    """Yield the words of every flag of the release that has a value.

    A flag that the release may not have is left out unless the deployment decides it.
    """
    for name, flag in profile.flags.items():
        if name not in decided and not flag.certain:
            continue
        value = decided.get(name, flag.default)
        if value is None or value is False:
            continue
        _require_value(name, flag, value, profile)
        yield f"--{name}"
        if not flag.switch:
            yield str(value)


def _require_value(name: str, flag: BuildFlag, value: Scalar, profile: ReleaseProfile) -> None:
    if flag.values and value not in flag.values:
        raise ConfigError(
            f"trtllm-build of TensorRT-LLM {profile.name} takes no --{name} {value}",
            hint=f"it takes {', '.join(flag.values)}",
        )


def _conversion(
    use: ModelUse, facts: EngineFacts, profile: ReleaseProfile
) -> tuple[str, list[str]]:
    """Return the name of the script, and the command that runs it."""
    wanted = profile.quantize_formats[use.precision]
    script = "quantize" if wanted.script == "quantize" else _family(use, profile)
    options = _quantize_options if script == "quantize" else _convert_options
    argv = [
        *("{python}", f"{{trtllm}}/{profile.converters[script].path}"),
        *("--model_dir", use.path, "--output_dir", "{checkpoint}"),
        *wanted.flags,
    ]
    if "--dtype" not in wanted.flags:
        argv += ["--dtype", "float16" if use.spec.dtype == "float32" else use.spec.dtype]
    known = profile.converters[script].flags
    argv += ["--tp_size", str(use.tp), "--pp_size", "1"]
    argv += ["--cp_size", "1"] if "cp_size" in known else []
    return script, [*argv, *options(use, facts, known)]


def _family(use: ModelUse, profile: ReleaseProfile) -> str:
    family = _FAMILIES.get(use.spec.model_type)
    if family is None:
        raise ConfigError(
            f"no conversion script of TensorRT-LLM {profile.name} is known for models of type "
            f"{use.spec.model_type}",
            hint=f"known are {', '.join(_FAMILIES)}",
        )
    return family


def _quantize_options(
    use: ModelUse, facts: EngineFacts, known: Mapping[str, Scalar]
) -> Iterator[str]:
    del use
    if facts.kv_cache_quant_algo is not None:
        yield from ("--kv_cache_dtype", facts.kv_cache_quant_algo.lower())
    for name in _CALIBRATION:
        if name in known:
            yield from (f"--{name}", str(known[name]))


def _convert_options(
    use: ModelUse, facts: EngineFacts, known: Mapping[str, Scalar]
) -> Iterator[str]:
    del known
    yield from ("--workers", str(use.tp))
    if facts.kv_cache_quant_algo is not None:
        yield f"--{facts.kv_cache_quant_algo.lower()}_kv_cache"


def _notes(
    use: ModelUse, script: str, profile: ReleaseProfile, *, decided: set[str]
) -> Iterator[str]:
    used = {
        f"converters.{script}": profile.converters[script],
        f"quantize_formats.{use.precision}": profile.quantize_formats[use.precision],
    }
    yield from (f"{place}: {e.note}" for place, e in used.items() if not e.certain)
    left_out = [n for n, flag in profile.flags.items() if not flag.certain and n not in decided]
    if left_out:
        yield f"left to the builder, for the release may not have them: {', '.join(left_out)}"


def _length_notes(facts: EngineFacts, usable: int) -> Iterator[str]:
    if facts.max_num_tokens < usable:
        yield (
            f"a text of more than max_num_tokens {facts.max_num_tokens} tokens needs chunked "
            "context, which drops draft tokens that do not fit the chunk"
        )
