"""Fit the speed model to what a user measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from specdeploy.core.models import ModelSpec
from specdeploy.core.speed import Calibration
from specdeploy.core.speed.calibrating import FEWEST, calibrate
from specdeploy.core.speed.rows import MeasuredRow, deployments
from specdeploy.errors import ConfigError
from specdeploy.workflows.inspect import locate
from specdeploy.workflows.ports import CheckpointReader, HubResolver


class MeasuredFiles(Protocol):
    """Reads measurements, and writes what they led to."""

    def read_measured(self, path: Path) -> list[MeasuredRow]:
        """Return the rows of a CSV file.

        Raises:
            ConfigError: unreadable, or a row is not a measurement; names the line.
        """

    def write_calibration(self, path: Path, calibration: Calibration) -> None:
        """Write a calibration whole or not at all.

        Raises:
            ConfigError: it cannot be written.
        """


@dataclass(frozen=True, slots=True)
class CalibrateRequest:
    """What to fit to.

    Attributes:
        measured: CSV files.
        output: Where the calibration goes.
        models: Checkpoint by the ``model_path`` that the rows write; the path itself where a
            row's is not here.
    """

    measured: Sequence[Path]
    output: Path
    models: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CalibrateTools:
    """What reads and writes."""

    files: MeasuredFiles
    checkpoints: CheckpointReader
    hub: HubResolver


def calibrate_speed(request: CalibrateRequest, *, tools: CalibrateTools) -> Calibration:
    """Return the calibration to all rows, and write it; nothing moves where that would not help.

    Raises:
        ConfigError: a file cannot be read or written, no row is usable, or a GPU or precision is
            not known.
        CheckpointError: a row's model cannot be read.
    """
    rows = [row for path in request.measured for row in tools.files.read_measured(path)]
    left_out = Counter(reason for row in rows if (reason := row.outside))
    used = [row for row in rows if not row.outside]
    if not used:
        raise ConfigError(
            "no row can be used",
            hint=_reasons(left_out) or "measure one server at several concurrencies",
        )
    groups = deployments(used, _models(used, request.models, tools))
    found = calibrate(list(groups.values()))
    notes = [f"left out: {_reasons(left_out)}"] if left_out else []
    if not found.values:
        notes.append(_why_nothing_moved(len(used)))
    told = found.evolve(deployments=[" ".join(map(str, key)) for key in groups], notes=notes)
    tools.files.write_calibration(request.output, told)
    return told


def _models(
    rows: Sequence[MeasuredRow], given: Mapping[str, str], tools: CalibrateTools
) -> dict[str, ModelSpec]:
    names = sorted({row.model_path for row in rows})
    unused = sorted(given.keys() - set(names))
    if unused:
        raise ConfigError(
            f"no row is of {', '.join(unused)}", hint=f"the rows are of {', '.join(names)}"
        )
    return {
        name: tools.checkpoints.read_model(locate(given.get(name, name), tools.hub))
        for name in names
    }


def _reasons(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} rows with {reason}" for reason, count in left_out.items())


def _why_nothing_moved(count: int) -> str:
    if count < FEWEST:
        return f"{count} points are too few to tell whether a fit would help; {FEWEST} are needed"
    return "no fit predicts left-out points better than the constants that come with specdeploy"
