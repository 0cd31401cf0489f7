"""From a command's CONFIG argument and overriding options to its settings."""

from __future__ import annotations

import os
from pathlib import Path

import click

from specdeploy import wiring
from specdeploy.cli.options import FLAGS_KEY, TUNING_KEY
from specdeploy.core.deployment import Deployment
from specdeploy.core.resolution import LoadedConfig
from specdeploy.events import Reporter
from specdeploy.workflows.deployment import ConfigRequest, load_config, resolve_deployment
from specdeploy.workflows.release import with_release


def load(config: Path | None, reporter: Reporter, *, writes_tuning: bool = False) -> LoadedConfig:
    """Read the file and apply the environment and this invocation's flags.

    With ``writes_tuning`` a broken ``tuning.json`` in the workspace is warned of alone.

    Raises:
        ConfigError: a file, a variable or a flag is wrong.
    """
    meta = click.get_current_context().meta
    request = ConfigRequest(
        cwd=Path.cwd(),
        config=config,
        environment=os.environ,
        flags=meta.get(FLAGS_KEY, ()),
        tuning=meta.get(TUNING_KEY),
        writes_tuning=writes_tuning,
    )
    loaded = load_config(request, files=wiring.config_files())
    if loaded.unused:
        reporter.note(f"not used by this release: {', '.join(loaded.unused)}")
    if loaded.broken_tuning is not None:
        reporter.warning(f"{loaded.broken_tuning}; it is replaced")
    return loaded


def resolve(loaded: LoadedConfig) -> Deployment:
    """Read the checkpoints and decide everything that was left open.

    Raises:
        ConfigError: a setting does not fit the checkpoints or this release.
        CheckpointError: a checkpoint cannot be read.
    """
    deployment = resolve_deployment(
        loaded,
        checkpoints=wiring.checkpoint_reader(),
        hub=wiring.hub_resolver(weights=True),
    )
    return with_release(
        deployment,
        loaded,
        profiles=wiring.release_profiles,
        host=wiring.installed_trtllm(),
    )
