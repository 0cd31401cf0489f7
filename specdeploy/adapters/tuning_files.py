"""Read acceptance and calibration files; write what ``tune`` found."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, final

from pydantic import ValidationError

from specdeploy.adapters.config_files import read_text
from specdeploy.adapters.durable import explained, staging_sibling
from specdeploy.core.acceptance import AcceptanceProfile
from specdeploy.core.record import Document
from specdeploy.core.speed import Calibration
from specdeploy.core.tuner.measured import MeasuredLoads
from specdeploy.errors import ConfigError

Read = TypeVar("Read", bound=Document)


@final
class LocalTuningFiles:
    """Files on this machine."""

    def read_acceptance(self, path: Path) -> AcceptanceProfile:
        """Return an ``acceptance.json``.

        Raises:
            ConfigError: unreadable, or not a profile of a version we know.
        """
        return _read(path, AcceptanceProfile)

    def read_calibration(self, path: Path) -> Calibration:
        """Return a calibration file.

        Raises:
            ConfigError: unreadable, or not a calibration of a version we know.
        """
        return _read(path, Calibration)

    def read_measured(self, path: Path) -> MeasuredLoads:
        """Return what was measured, load by load.

        Raises:
            ConfigError: unreadable, or not such a file of a version we know.
        """
        return _read(path, MeasuredLoads)

    def write_texts(self, folder: Path, texts: Mapping[str, str]) -> None:
        """Write files by name, each whole or not at all; makes the folder.

        Raises:
            ConfigError: one cannot be written.
        """
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            _write(folder / name, text)


def _read(path: Path, document: type[Read]) -> Read:
    try:
        return document.model_validate(json.loads(read_text(path)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {key}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None


def _write(path: Path, text: str) -> None:
    fresh = staging_sibling(path)
    with explained(path):
        try:
            with fresh.open("x", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
