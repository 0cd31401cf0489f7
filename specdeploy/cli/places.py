"""From what the user names (a file, a repository, a workspace) to folders."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from specdeploy.cli import settings
from specdeploy.cli.options import FLAGS_KEY
from specdeploy.core.artifacts import REPOSITORIES, REPOSITORY_LINK, REPOSITORY_RECORD
from specdeploy.core.config import CONFIG_NAME, WORKSPACE_NAME
from specdeploy.core.deployment import ServingSettings
from specdeploy.core.resolution import LoadedConfig
from specdeploy.errors import ConfigError
from specdeploy.events import Reporter


class ServedPlace(NamedTuple):
    """What to serve, where its state goes, and what the file says about serving."""

    repository: Path
    workspace: Path
    serving: ServingSettings
    loaded: LoadedConfig | None


def find_served(named: Path | None, workspace: Path | None, reporter: Reporter) -> ServedPlace:
    """Return the repository that CONFIG or REPOSITORY means.

    A workspace given as a folder means its own repository. The workspace of a repository is
    the one that holds it, else ``.specdeploy`` beside it.

    Raises:
        ConfigError: a file is wrong, or there is none.
    """
    if named is not None and named.is_dir():
        repository = named if (named / REPOSITORY_RECORD).exists() else _current(named)
        place = workspace or _workspace_of(repository.absolute())
        return ServedPlace(repository, place.absolute(), ServingSettings(), None)
    loaded = load_config(named, workspace, reporter)
    folder = Path(loaded.workspace)
    return ServedPlace(folder / REPOSITORY_LINK, folder, loaded.config.serving, loaded)


def find_workspace(named: Path | None, reporter: Reporter) -> Path:
    """Return the workspace that a folder, a CONFIG, or nothing means.

    Raises:
        ConfigError: a file is wrong, or the folder does not exist.
    """
    if named is None:
        here = Path(CONFIG_NAME)
        return find_workspace(here, reporter) if here.exists() else Path(WORKSPACE_NAME).absolute()
    if named.is_file():
        return Path(load_config(named, None, reporter).workspace)
    if not named.is_dir():
        raise ConfigError(f"{named} does not exist", hint="name a workspace such as .specdeploy")
    inside = named / WORKSPACE_NAME
    return (inside if inside.is_dir() else named).absolute()


def load_config(named: Path | None, workspace: Path | None, reporter: Reporter) -> LoadedConfig:
    """Read CONFIG with ``--workspace`` applied."""
    if workspace is not None:
        flags = click.get_current_context().meta.setdefault(FLAGS_KEY, [])
        flags.append(("--workspace", "workspace", str(workspace)))
    return settings.load(named, reporter)


def _current(folder: Path) -> Path:
    inside = folder / REPOSITORY_LINK
    return inside if inside.exists() else folder


def _workspace_of(repository: Path) -> Path:
    """Undo the layout of a workspace: ``repository`` or ``repositories/<digest>``."""
    if repository.name == REPOSITORY_LINK:
        return repository.parent
    if repository.parent.name == REPOSITORIES:
        return repository.parent.parent
    return repository.parent / WORKSPACE_NAME
