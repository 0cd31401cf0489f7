"""Decide what the user left open: from the tuning file, the checkpoints, or a stated default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specdeploy.core.config import NOT_USED_YET, Config, ModelSection
from specdeploy.core.deployment import Deployment, ModelUse, ResolvedLimits, TunedServing
from specdeploy.core.models import PRECISION_OF_DTYPE, ModelSpec
from specdeploy.core.precision import AUTO
from specdeploy.core.record import Record
from specdeploy.core.repository import Method, Shape
from specdeploy.core.settings import DEFAULT, Source
from specdeploy.core.tuning import TuningFile
from specdeploy.errors import ConfigError

DEFAULT_DRAFT_LENGTH: Final = 4
DEFAULT_BATCH_SIZE: Final = 4
DEFAULT_NUM_TOKENS: Final = 8192
DEFAULT_SHAPE: Final[Shape] = "engine"

# owner/name on the Hugging Face Hub; a folder of that name beside the file wins.
HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_DRAFTING: Final[frozenset[Method]] = frozenset({"draft_target"})


class LoadedConfig(Record):
    """A validated configuration, and where each of its values came from.

    ``broken_tuning`` is what is wrong with a ``tuning.json`` that was passed over.
    """

    config: Config
    file: str | None = None
    workspace: str
    home: str = ""
    sources: dict[str, Source] = {}
    tuning: TuningFile | None = None
    broken_tuning: str | None = None

    def source(self, key: str) -> Source:
        """Return who gave a setting."""
        return self.sources.get(key, DEFAULT)

    @property
    def unused(self) -> list[str]:
        """Settings that were given and that nothing in this release acts on."""
        names = list(NOT_USED_YET)
        if self.config.runtime.name == "reference":
            names += ["runtime.container", "runtime.trtllm_source"]
        else:
            names.append("runtime.shape")  # the others have one shape each
        if self.config.runtime.name != "llmapi":
            names.append("llmapi")
        return [
            key
            for key in self.sources
            if any(key == name or key.startswith(f"{name}.") for name in names)
        ]


@dataclass(frozen=True, slots=True)
class Located:
    """A checkpoint: its absolute path and what it is."""

    path: str
    spec: ModelSpec


@dataclass(frozen=True, slots=True)
class Decided:
    """The number a setting ends up with, and who decided it."""

    value: int
    source: Source


@dataclass(frozen=True, slots=True)
class Context:
    """The shorter context of the pair, in tokens, and whose it is."""

    role: str
    tokens: int


def uses_draft(method: Method) -> bool:
    """Tell whether a method needs a second model."""
    return method in _DRAFTING


def shape_of(config: Config) -> Shape:
    """Return the repository's shape: the runtime's own, or what reference imitates."""
    if config.runtime.name == "reference":
        return config.runtime.shape or DEFAULT_SHAPE
    return config.runtime.name


def shorter_context(target: ModelSpec, draft: ModelSpec | None) -> Context:
    """Return the context that limits the pair."""
    contexts = [Context("target", target.context_length)]
    if draft:
        contexts.append(Context("draft", draft.context_length))
    return min(contexts, key=lambda context: context.tokens)


def decide(loaded: LoadedConfig, context: Context | None) -> dict[str, Decided]:
    """Return the numbers that may be ``auto``: the user's, else tuning's, else the default.

    ``limits.max_seq_len`` is left out when only a context could decide it and none is known.

    Raises:
        ConfigError: the numbers do not fit the context.
    """
    length = _given(loaded, "draft_length") or Decided(DEFAULT_DRAFT_LENGTH, DEFAULT)
    if loaded.config.method == "none":
        length = Decided(0, Source(kind="default", name="of method none"))
    batch = _given(loaded, "limits.max_batch_size") or Decided(DEFAULT_BATCH_SIZE, DEFAULT)
    verified = batch.value * (length.value + 1)
    tokens = Decided(max(DEFAULT_NUM_TOKENS, verified), DEFAULT)
    decided = {
        "draft_length": length,
        "limits.max_batch_size": batch,
        "limits.max_num_tokens": _given(loaded, "limits.max_num_tokens") or tokens,
    }
    usable = _given(loaded, "limits.max_seq_len")
    if context:
        of_context = Source(kind="checkpoint", name=f"context of the {context.role}")
        usable = usable or Decided(context.tokens - length.value, of_context)
        _require_room(length, usable, context)
    return {**decided, "limits.max_seq_len": usable} if usable else decided


def plan_deployment(loaded: LoadedConfig, *, target: Located, draft: Located | None) -> Deployment:
    """Return the deployment that the configuration makes of these checkpoints.

    Raises:
        ConfigError: a setting does not fit the checkpoints or another setting.
    """
    config = loaded.config
    decided = decide(loaded, shorter_context(target.spec, draft.spec if draft else None))
    tuned = any(number.source.kind == "tuning" for number in decided.values())
    return Deployment(
        target=_use(config.target, "target", target),
        draft=_use(config.draft, "draft", draft) if config.draft and draft else None,
        method=config.method,
        runtime=config.runtime.name,
        shape=shape_of(config),
        draft_length=decided["draft_length"].value,
        limits=ResolvedLimits(
            max_batch_size=decided["limits.max_batch_size"].value,
            max_seq_len=decided["limits.max_seq_len"].value,
            max_num_tokens=decided["limits.max_num_tokens"].value,
        ),
        sampling=config.sampling,
        serving=config.serving,
        llmapi=config.llmapi,
        tuned=_tuned_serving(loaded, decided),
        allow_lossy=config.allow_lossy,
        trust_remote_code=config.trust_remote_code,
        tuning_digest=loaded.tuning.content_digest if loaded.tuning and tuned else None,
    )


def precision_of(section: ModelSection, spec: ModelSpec, *, role: str) -> str:
    """Return the precision a model is served in; ``auto`` keeps that of the stored weights.

    Raises:
        ConfigError: ``auto`` on weights whose type has no served precision.
    """
    if section.precision != AUTO:
        return section.precision
    if spec.dtype not in PRECISION_OF_DTYPE:
        raise ConfigError(
            f"{role}.precision is auto, and the weights are stored as {spec.dtype}",
            hint=f"set {role}.precision to one of {', '.join(PRECISION_OF_DTYPE.values())}",
        )
    return PRECISION_OF_DTYPE[spec.dtype]


def _use(section: ModelSection, role: str, model: Located) -> ModelUse:
    return ModelUse(
        path=model.path,
        spec=model.spec,
        precision=precision_of(section, model.spec, role=role),
        kv_dtype=section.kv_dtype,
        tp=section.tp,
    )


def _given(loaded: LoadedConfig, key: str) -> Decided | None:
    """Return the user's number, else tuning's."""
    name = key.rpartition(".")[2]
    config = loaded.config
    written = getattr(config.limits if key.startswith("limits.") else config, name)
    if isinstance(written, int):
        return Decided(written, loaded.source(key))
    tuning = loaded.tuning
    chosen: int | None = getattr(tuning.choice, name) if tuning else None
    if tuning and chosen is not None:
        return Decided(chosen, Source(kind="tuning", name=tuning.path))
    return None


def _tuned_serving(loaded: LoadedConfig, decided: Mapping[str, Decided]) -> TunedServing:
    """Return what tuning decided beside its numbers; a pool is for these very numbers only."""
    tuning = loaded.tuning
    if tuning is None:
        return TunedServing()
    numbers = {key.rpartition(".")[2]: number.value for key, number in decided.items()}
    same = all(getattr(tuning.choice, name) == value for name, value in numbers.items())
    return tuning.serving if same else tuning.serving.evolve(kv_fraction=None)


def _require_room(length: Decided, usable: Decided, context: Context) -> None:
    """Refuse a sequence that, with a whole draft behind it, runs over a model's context."""
    room = context.tokens - length.value
    if 1 <= usable.value <= room:
        return
    raise ConfigError(
        f"max_seq_len {usable.value} ({usable.source}) and draft_length {length.value} "
        f"({length.source}) do not fit: the {context.role} has {context.tokens} positions",
        hint=f"max_seq_len can be at most {max(0, room)}",
    )
