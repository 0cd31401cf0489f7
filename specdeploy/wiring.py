"""Constructs the adapters that workflows are given; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdeploy.workflows import ports


def config_files() -> ports.ConfigFiles:
    """Return the reader of ``specdeploy.yaml`` and ``tuning.json``."""
    from specdeploy.adapters.config_files import LocalConfigFiles  # noqa: PLC0415

    return LocalConfigFiles()


def checkpoint_reader() -> ports.CheckpointReader:
    """Return the reader of Hugging Face checkpoint directories."""
    raise NotImplementedError


def hub_resolver() -> ports.HubResolver:
    """Return the resolver of Hugging Face Hub ids."""
    raise NotImplementedError
