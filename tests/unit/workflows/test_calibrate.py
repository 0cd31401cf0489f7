"""Rows in, a calibration out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from planning_models import model_named
from speed_pairs import measured

from specdeploy.core.models import ModelSpec
from specdeploy.core.speed import DEFAULT, Calibration, Constants
from specdeploy.core.speed.rows import MeasuredRow
from specdeploy.errors import CheckpointError, ConfigError
from specdeploy.workflows.calibrate import CalibrateRequest, CalibrateTools, calibrate_speed

OUTPUT = Path("calibration.json")


@dataclass
class MemoryFiles:
    """CSV files by name, and what was written."""

    rows: dict[str, list[MeasuredRow]]
    written: dict[Path, Calibration] = field(default_factory=dict)

    def read_measured(self, path: Path) -> list[MeasuredRow]:
        return self.rows[path.name]

    def write_calibration(self, path: Path, calibration: Calibration) -> None:
        self.written[path] = calibration


class OneModel:
    """A checkpoint at every path but one."""

    def read_model(self, path: Path) -> ModelSpec:
        if path.name == "broken":
            raise CheckpointError("broken: no config.json")
        return model_named("Llama-3.1-70B")


class NoHub:
    """A hub that has nothing."""

    def resolve(self, repo_id: str) -> Path:
        raise ConfigError(f"{repo_id} is not cached")


SLOW = DEFAULT.moved({"layer_s": 1.5 * DEFAULT.layer_s})


def rows_of(constants: Constants, model: str = "llama", *, count: int = 12) -> list[MeasuredRow]:
    """Return points of a machine that ``constants`` are true of."""
    points = measured(constants, points=count)
    load = points.load
    return [
        MeasuredRow(
            model_path=model,
            system="h100_sxm",
            precision="fp8",
            tp_size=2,
            isl=int(np.asarray(load.input_len)[i]),
            osl=int(np.asarray(load.output_len)[i]),
            batch_size=int(np.asarray(load.batch)[i]),
            silicon_ttft_ms=float(points.ttft_ms[i]),
            silicon_tpot_ms=float(points.tpot_ms[i]),
        )
        for i in range(count)
    ]


def slow_rows(model: str = "llama", *, count: int = 12) -> list[MeasuredRow]:
    return rows_of(SLOW, model, count=count)


def run(files: MemoryFiles, names: Sequence[str] = ("a.csv",), **models: str) -> Calibration:
    request = CalibrateRequest([Path(name) for name in names], OUTPUT, models)
    return calibrate_speed(request, tools=CalibrateTools(files, OneModel(), NoHub()))


def test_what_is_returned_is_what_is_written() -> None:
    files = MemoryFiles({"a.csv": slow_rows()})
    found = run(files)
    assert files.written == {OUTPUT: found}
    assert found.after.tpot < found.before.tpot
    assert found.deployments == ["llama h100_sxm fp8 2"]
    assert found.notes == []


def test_several_files_are_fitted_together() -> None:
    rows = slow_rows()
    files = MemoryFiles({"a.csv": rows[:5], "b.csv": rows[5:]})
    assert run(files, ("a.csv", "b.csv")).points == 12


def test_rows_outside_the_model_are_left_out_and_told() -> None:
    rows = slow_rows()
    rows[0] = rows[0].evolve(pp_size=2)
    found = run(MemoryFiles({"a.csv": rows}))
    assert found.points == 11
    assert found.notes == ["left out: 1 rows with pipeline parallelism"]


def test_no_usable_row_is_an_error_that_says_why() -> None:
    rows = [row.evolve(attention_dp_size=8) for row in slow_rows(count=2)]
    with pytest.raises(ConfigError, match="no row can be used") as caught:
        run(MemoryFiles({"a.csv": rows}))
    assert caught.value.hint == "2 rows with attention data parallelism"
    with pytest.raises(ConfigError) as caught:
        run(MemoryFiles({"a.csv": []}))
    assert "several concurrencies" in str(caught.value.hint)


def test_too_few_points_are_told() -> None:
    found = run(MemoryFiles({"a.csv": slow_rows(count=2)}))
    assert found.values == {}
    assert found.notes == ["2 points are too few to tell whether a fit would help; 4 are needed"]


def test_a_fit_that_would_not_help_is_told() -> None:
    rows = [
        row.evolve(
            silicon_tpot_ms=row.silicon_tpot_ms * (0.8 if i < 12 else 1.25),
            silicon_ttft_ms=None,
        )
        for i, row in enumerate(rows_of(DEFAULT, count=24))
    ]
    found = run(MemoryFiles({"a.csv": rows}))
    assert found.values == {}
    assert "no fit predicts left-out points better" in found.notes[0]


def test_the_checkpoint_of_a_label_is_given_by_hand() -> None:
    files = MemoryFiles({"a.csv": slow_rows("our chat model", count=4)})
    found = run(files, **{"our chat model": "/models/llama"})
    assert found.deployments == ["our chat model h100_sxm fp8 2"]


def test_a_checkpoint_for_no_row_is_refused() -> None:
    with pytest.raises(ConfigError, match="no row is of llma") as caught:
        run(MemoryFiles({"a.csv": slow_rows(count=4)}), llma="/models/llama")
    assert caught.value.hint == "the rows are of llama"


@pytest.mark.parametrize("name", ["broken", "owner/not-cached"])
def test_a_model_that_cannot_be_read_ends_it(name: str) -> None:
    files = MemoryFiles({"a.csv": slow_rows(name, count=4)})
    with pytest.raises(CheckpointError):
        run(files)
    assert files.written == {}
