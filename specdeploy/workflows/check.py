"""Tell whether a draft and a target belong together, before anything is built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdeploy.core.compat import (
    DRAFTLESS_METHODS,
    CompatReport,
    Member,
    PairQuestion,
    RuntimeFacts,
    Side,
    check_pair,
)
from specdeploy.core.config import ModelSection
from specdeploy.core.hardware import GpuSpec, find_gpu
from specdeploy.core.resolution import LoadedConfig, decide
from specdeploy.errors import CheckpointError, ConfigError
from specdeploy.runtimes import RUNTIMES
from specdeploy.workflows.deployment import PairPaths, locate_models
from specdeploy.workflows.ports import (
    CheckpointReader,
    HubResolver,
    TokenizerReader,
    WeightsIdentifier,
)


@dataclass(frozen=True, slots=True)
class CheckTools:
    """What reads the checkpoints."""

    checkpoints: CheckpointReader
    tokenizers: TokenizerReader
    weights: WeightsIdentifier
    hub: HubResolver


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What to check.

    Attributes:
        settings: The file, the environment and the flags, merged.
        head_method: A method for draft heads, which the file cannot name yet; it wins.
        use_draft_logits: Whether logits must allow acceptance by probability.
    """

    settings: LoadedConfig
    head_method: str | None = None
    use_draft_logits: bool = False


def check(request: CheckRequest, *, tools: CheckTools) -> CompatReport:
    """Read both checkpoints and judge the pair.

    Raises:
        ConfigError: a path does not exist, the GPU is unknown, or no draft is set.
        CheckpointError: a checkpoint or tokenizer file cannot be read.
    """
    loaded = request.settings
    if request.head_method is not None:
        loaded = _for_head(loaded, request.head_method)
    return check_pair(_question(request, loaded, tools))


def _for_head(loaded: LoadedConfig, method: str) -> LoadedConfig:
    """Return the settings with a method that locates the head as a draft is located."""
    config = loaded.config
    if config.draft is not None:
        return loaded.evolve(config=config.evolve(method="draft_target"))
    if method == "mtp":  # the target may hold the modules itself
        return loaded.evolve(config=config.evolve(method="none"))
    raise ConfigError(f"method {method} needs a draft head, and none is set", hint="pass --draft")


def _question(request: CheckRequest, loaded: LoadedConfig, tools: CheckTools) -> PairQuestion:
    config = loaded.config
    paths = locate_models(loaded, hub=tools.hub)
    decided = decide(loaded, None)
    asked = decided.get("limits.max_seq_len")
    return PairQuestion(
        target=_member("target", paths.target, config.target, tools),
        draft=_draft(paths, config.draft, tools),
        draft_unused=config.draft is not None and config.method in DRAFTLESS_METHODS,
        method=request.head_method or config.method,
        draft_length=decided["draft_length"].value,
        max_seq_len=asked.value if asked else None,
        use_draft_logits=request.use_draft_logits,
        runtime=_runtime(loaded),
        trtllm_version=config.runtime.trtllm_version,
        gpu=_gpu(config.hardware.gpu),
    )


def _member(side: Side, path: Path, section: ModelSection, tools: CheckTools) -> Member:
    try:
        return Member(
            path=str(path),
            model=tools.checkpoints.read_model(path),
            tokenizer=tools.tokenizers.read_tokenizer(path),
            weights=tools.weights.identify_weights(path),
            precision=section.precision,
            tp=section.tp,
        )
    except CheckpointError as error:
        # Both directories hold files of the same names.
        raise CheckpointError(f"{side} {path}: {error}", hint=error.hint) from error


def _draft(paths: PairPaths, section: ModelSection | None, tools: CheckTools) -> Member | None:
    if paths.draft is None or section is None:
        return None
    return _member("draft", paths.draft, section, tools)


def _names_runtime(loaded: LoadedConfig) -> bool:
    """Without a file and without ``--runtime`` the question is about the pair alone."""
    return loaded.file is not None or loaded.source("runtime.name").kind != "default"


def _runtime(loaded: LoadedConfig) -> RuntimeFacts | None:
    if not _names_runtime(loaded):
        return None
    name = loaded.config.runtime.name
    can = RUNTIMES[name].capabilities
    return RuntimeFacts(
        name=name,
        methods=list(can.methods),
        precisions=can.precisions,
        max_draft_length=can.max_draft_length,
    )


def _gpu(name: str | None) -> GpuSpec | None:
    return None if name is None else find_gpu(name)
