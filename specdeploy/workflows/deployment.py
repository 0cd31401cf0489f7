"""Turn what the user wrote into a deployment with nothing left to decide."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from specdeploy.core.config import CONFIG_NAME
from specdeploy.core.config_errors import validate
from specdeploy.core.deployment import Deployment
from specdeploy.core.resolution import (
    HUB_ID,
    LoadedConfig,
    Located,
    plan_deployment,
    uses_draft,
)
from specdeploy.core.settings import (
    ConfigFile,
    Layer,
    Source,
    for_models_given,
    layer_of_environment,
    layer_of_file,
    layer_of_flags,
    merge,
    sections,
)
from specdeploy.core.tuning import TuningFile
from specdeploy.errors import CheckpointError, ConfigError
from specdeploy.runtimes import RUNTIMES
from specdeploy.runtimes.fit import require_fit
from specdeploy.workflows.ports import CheckpointReader, ConfigFiles, HubResolver

TUNING_NAME: Final = "tuning.json"


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """What the user pointed at, and everything that overrides it.

    Attributes:
        cwd: The folder that relative paths in ``environment`` and ``flags`` start from.
        config: The file; None takes ``specdeploy.yaml`` in ``cwd`` when it is there.
        environment: Variables; those named ``SPECDEPLOY_...`` are settings.
        flags: (flag, dotted key, text), in the order given.
        tuning: A ``tuning.json``; None takes the workspace's when it is there.
        writes_tuning: The workspace's is about to be replaced: broken, it is passed over.
    """

    cwd: Path
    config: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[tuple[str, str, str]] = ()
    tuning: Path | None = None
    writes_tuning: bool = False


@dataclass(frozen=True, slots=True)
class PairPaths:
    """Checkpoint directories of the pair; no draft when the method uses none."""

    target: Path
    draft: Path | None


def load_config(request: ConfigRequest, *, files: ConfigFiles) -> LoadedConfig:
    """Read, merge and validate the configuration.

    Raises:
        ConfigError: neither a file nor a target, or something in them is wrong.
    """
    cwd, home = str(request.cwd), request.environment.get("HOME", "")
    overrides = [
        layer_of_environment(request.environment, base=cwd),
        layer_of_flags(request.flags, base=cwd),
    ]
    file = _read_file(request, overrides, files)
    given = for_models_given(merge([layer_of_file(file), *overrides] if file else overrides))
    config = validate(given)
    sources = {key: value.source for key, value in given.items() if key not in sections()}
    beside = Source(kind="default", base=file.directory if file else cwd)
    workspace = _absolute(config.workspace, sources.get("workspace", beside), home)
    tuning, broken = _read_tuning(request, workspace, files)
    return LoadedConfig(
        config=config,
        file=file.name if file else None,
        workspace=str(workspace),
        home=home,
        sources=sources,
        tuning=tuning,
        broken_tuning=broken,
    )


def locate_models(loaded: LoadedConfig, *, hub: HubResolver) -> PairPaths:
    """Return where the pair's checkpoints lie (absolute paths).

    Raises:
        ConfigError: a path does not exist, a Hub id cannot be resolved, or no draft is set.
    """
    config = loaded.config
    target = _locate(loaded, "target", config.target.path, hub)
    if not uses_draft(config.method):
        return PairPaths(target=target, draft=None)
    if config.draft is None:
        raise ConfigError(
            f"method {config.method} needs a draft model, and none is set",
            hint="set draft.path (--draft), or method ngram, which drafts from the prompt",
        )
    return PairPaths(target=target, draft=_locate(loaded, "draft", config.draft.path, hub))


def read_pair(
    loaded: LoadedConfig, *, checkpoints: CheckpointReader, hub: HubResolver
) -> tuple[Located, Located | None]:
    """Find and read the pair's checkpoints; no draft when the method uses none.

    Raises:
        ConfigError: a path does not exist, a Hub id cannot be resolved, or no draft is set.
        CheckpointError: a checkpoint cannot be read.
    """
    paths = locate_models(loaded, hub=hub)
    target = Located(str(paths.target), checkpoints.read_model(paths.target))
    if paths.draft is None:
        return target, None
    return target, Located(str(paths.draft), checkpoints.read_model(paths.draft))


def resolve_deployment(
    loaded: LoadedConfig, *, checkpoints: CheckpointReader, hub: HubResolver
) -> Deployment:
    """Read the pair's checkpoints and decide everything that was left open.

    Raises:
        ConfigError: a setting does not fit this release, the checkpoints or another setting.
        CheckpointError: a checkpoint cannot be read.
    """
    runtime = RUNTIMES[loaded.config.runtime.name]
    target, draft = read_pair(loaded, checkpoints=checkpoints, hub=hub)
    deployment = plan_deployment(loaded, target=target, draft=draft)
    require_fit(deployment, runtime.capabilities)
    return deployment


def _read_file(
    request: ConfigRequest, overrides: Sequence[Layer], files: ConfigFiles
) -> ConfigFile | None:
    if request.config is not None:
        return files.read_config(request.cwd / request.config, name=str(request.config))
    if _exists(request.cwd / CONFIG_NAME):
        return files.read_config(request.cwd / CONFIG_NAME, name=CONFIG_NAME)
    if any("target.path" in layer for layer in overrides):
        return None
    raise ConfigError(
        f"there is no {CONFIG_NAME} in {request.cwd}, and no target was given",
        hint="`specdeploy init --target T --draft D` writes one",
    )


def _read_tuning(
    request: ConfigRequest, workspace: Path, files: ConfigFiles
) -> tuple[TuningFile | None, str | None]:
    """Return the tuning file, or what is wrong with one that is about to be replaced."""
    if request.tuning is not None:
        return files.read_tuning(request.cwd / request.tuning), None
    kept = workspace / TUNING_NAME
    try:
        return files.read_tuning(kept) if kept.exists() else None, None
    except OSError as error:
        raise ConfigError(f"cannot look into workspace {workspace}: {error.strerror}") from error
    except ConfigError as error:
        if not request.writes_tuning:
            raise
        return None, str(error)


def _locate(loaded: LoadedConfig, role: str, written: str, hub: HubResolver) -> Path:
    source = loaded.source(f"{role}.path")
    path = _absolute(written, source, loaded.home)
    if _exists(path):
        return path
    if not HUB_ID.fullmatch(written):
        raise CheckpointError(f"{role}.path ({source}): {path} does not exist")
    try:
        return hub.resolve(written)
    except ConfigError as error:
        raise CheckpointError(
            f"{role}.path ({source}): {path} does not exist, and as a Hub id: {error}",
            hint=error.hint,
        ) from error


def _absolute(written: str, source: Source, home: str) -> Path:
    """Return a path as its source means it; ``~`` and ``~/`` are the user's home folder."""
    text = f"{home}{written[1:]}" if home and f"{written}/".startswith("~/") else written
    return Path(os.path.normpath(Path(source.base) / text))


def _exists(path: Path) -> bool:
    """Tell whether something is there; False for names that the system refuses."""
    return os.path.exists(path)  # noqa: PTH110 - pathlib raises for those
