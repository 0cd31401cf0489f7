"""What workflows need to know about the machine; adapters implement it, tests fake it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol

from typing_extensions import Self

from specdeploy.core.devices import Machine, MemoryUse
from specdeploy.core.host import HostFacts


class DeviceProbe(Protocol):
    """Reads the GPUs of this machine."""

    def probe(self) -> Machine:
        """Return the GPUs that a process started here would see; says why there are none."""


class HostReader(Protocol):
    """Reads the machine apart from its GPUs."""

    def facts(self, workspace: Path) -> HostFacts:
        """Return what is here, with the disk that a workspace lies on or would lie on."""


class MemoryWatch(Protocol):
    """Samples the used memory of the visible GPUs while its block runs.

    A peak between two samples is not seen: what is told is a lower bound of the true peak.
    """

    def __enter__(self) -> Self:
        """Take the baseline and begin. Without GPUs it watches nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take a last sample and end."""

    @property
    def error(self) -> str | None:
        """Why nothing is watched."""

    def uses(self) -> list[MemoryUse]:
        """Return baseline and peak of each device so far."""
