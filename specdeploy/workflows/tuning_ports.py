"""What tuning reads and writes; an adapter implements it, tests fake it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from specdeploy.core.acceptance import AcceptanceProfile
from specdeploy.core.release_profile import ReleaseProfile
from specdeploy.core.speed import Calibration
from specdeploy.core.tuner.measured import MeasuredLoads

ReleaseProfiles = Callable[[], tuple[ReleaseProfile, ...]]


class TuningFiles(Protocol):
    """Reads what was measured, and writes what was chosen."""

    def read_acceptance(self, path: Path) -> AcceptanceProfile:
        """Return an ``acceptance.json``.

        Raises:
            ConfigError: unreadable, or not a profile of a version we know.
        """

    def read_calibration(self, path: Path) -> Calibration:
        """Return a calibration file.

        Raises:
            ConfigError: unreadable, or not a calibration of a version we know.
        """

    def read_measured(self, path: Path) -> MeasuredLoads:
        """Return what was measured, load by load.

        Raises:
            ConfigError: unreadable, or not such a file of a version we know.
        """

    def write_texts(self, folder: Path, texts: Mapping[str, str]) -> None:
        """Write files by name, each whole or not at all; makes the folder.

        Raises:
            ConfigError: one cannot be written.
        """
