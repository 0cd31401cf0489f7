"""Where the step times of an estimate come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from configs import FakeHub
from kernel_tables import FakeTables
from planning_models import model_named

from specdeploy.adapters.tuning_files import LocalTuningFiles
from specdeploy.core.models import ModelSpec
from specdeploy.core.speed import DEFAULT
from specdeploy.errors import ConfigError
from specdeploy.workflows.estimate import EstimateTools, Estimator, Query, check_query


class NamedCheckpoints:
    """Reads the recorded model that a directory is named after."""

    def read_model(self, path: Path) -> ModelSpec:
        return model_named(path.name)


def estimator(folder: Path, tables: FakeTables) -> Estimator:
    files = LocalTuningFiles()
    tools = EstimateTools(NamedCheckpoints(), FakeHub(), files, kernels=tables)
    return Estimator(tools, folder)


EXPERTS = Query(target="Mixtral", gpu="h100", tp=2, batch=8)


def test_numbers_of_timed_kernels_are_called_so(tmp_path: Path) -> None:
    found, _ = estimator(tmp_path, FakeTables(tmp_path / "Mixtral")).estimate(EXPERTS)
    assert found.sources["baseline.tpot_ms"] == "measured table"
    assert "the target's kernels take what they took with straight lines" in found.assumptions


def test_timed_kernels_change_the_times(tmp_path: Path) -> None:
    ways = [
        estimator(tmp_path, tables).estimate(EXPERTS)[0].baseline
        for tables in (FakeTables(tmp_path / "Mixtral"), FakeTables(installed=False))
    ]
    assert ways[0] is not None
    assert ways[1] is not None
    assert ways[0].tpot_ms != pytest.approx(ways[1].tpot_ms, rel=0.01)


def test_drafting_is_fitted_whatever_was_timed(tmp_path: Path) -> None:
    tables = FakeTables(tmp_path / "Mixtral")
    query = check_query({"draft": "Llama-3.2-1B", "draft_length": 3, "acceptance": 0.7}, EXPERTS)
    found, _ = estimator(tmp_path, tables).estimate(query)
    assert found.sources["baseline.tpot_ms"] == "measured table"
    assert found.sources["speculative.tpot_ms"] in {"fitted", "assumed"}


def test_the_source_is_a_key_of_a_point(tmp_path: Path) -> None:
    tables = FakeTables(tmp_path / "Mixtral")
    lines = ['{"source": "physics"}', '{"source": "silicon"}', '{"source": "sand"}']
    found = list(estimator(tmp_path, tables).lines(lines, EXPERTS))
    told = [answer["sources"]["baseline.tpot_ms"] for answer in found[:2]]  # type: ignore[index]
    assert told == ["fitted", "measured table"]
    assert "auto, physics, silicon" in str(found[2]["error"])


def test_kernels_are_asked_for_once_for_all_lines(tmp_path: Path) -> None:
    tables = FakeTables(tmp_path / "Mixtral")
    list(estimator(tmp_path, tables).lines(['{"batch": 1}', '{"batch": 2}'], EXPERTS))
    assert tables.asked == [tmp_path / "Mixtral"]


def test_a_calibration_keeps_the_step_times_that_it_was_fitted_with(tmp_path: Path) -> None:
    tables = FakeTables(tmp_path / "Mixtral")
    calibrated = estimator(tmp_path, tables)
    calibrated.constants = replace(DEFAULT, calibrated=frozenset({"step_s"}))
    found, _ = calibrated.estimate(EXPERTS)
    assert found.sources["baseline.tpot_ms"] == "calibrated"
    assert tables.asked == []


def test_a_target_that_nobody_timed_is_refused_by_silicon(tmp_path: Path) -> None:
    query = check_query({"source": "silicon"}, EXPERTS)
    with pytest.raises(ConfigError, match="nobody timed it"):
        estimator(tmp_path, FakeTables()).estimate(query)
