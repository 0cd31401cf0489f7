"""Measured rows become deployments."""

from __future__ import annotations

import numpy as np
import pytest
from planning_models import model_named
from pydantic import ValidationError

from specdeploy.core.speed import Load
from specdeploy.core.speed.rows import MeasuredRow, deployments, empty_cells_out
from specdeploy.errors import ConfigError

SPECS = {"llama": model_named("Llama-3.1-70B"), "small": model_named("Llama-3.1-8B")}


def row(**changes: object) -> MeasuredRow:
    cells = {"model_path": "llama", "system": "h200_sxm", "precision": "fp8", "tp_size": 2}
    cells |= {"isl": 1024, "osl": 512, "batch_size": 8}
    cells |= {"silicon_ttft_ms": 100.0, "silicon_tpot_ms": 12.0}
    return MeasuredRow.model_validate({**cells, **changes})


def test_rows_of_one_model_gpu_precision_and_tp_are_one_deployment() -> None:
    rows = [row(batch_size=4), row(model_path="small", tp_size=1), row(batch_size=16)]
    found = deployments(rows, SPECS)
    assert list(found) == [("llama", "h200_sxm", "fp8", 2), ("small", "h200_sxm", "fp8", 1)]
    first = found["llama", "h200_sxm", "fp8", 2]
    assert list(np.asarray(first.load.batch)) == [4, 16]
    assert first.serving.target.model.tp == 2


def test_quantized_weights_come_with_an_8_bit_cache_unless_told() -> None:
    cells = [
        row(),
        row(tp_size=1, precision="bf16"),
        row(tp_size=4, kv_dtype="bf16"),
    ]
    found = deployments(cells, SPECS)
    assert [group.serving.target.model.kv_dtype for group in found.values()] == [
        "bf16",
        "fp8",
        "bf16",
    ]


def test_requests_that_memory_does_not_hold_are_known_to_wait() -> None:
    long = row(tp_size=1, isl=30000, osl=2000, batch_size=64)
    resident = deployments([long], SPECS)["llama", "h200_sxm", "fp8", 1].load.resident
    assert resident is not None
    assert 1 <= float(np.asarray(resident)[0]) < 64


def test_a_deployment_that_seems_not_to_fit_holds_one_request() -> None:
    tight = row(system="l4", tp_size=1)
    found = deployments([tight], SPECS)
    assert list(np.asarray(next(iter(found.values())).load.resident)) == [1]


def test_a_first_token_that_was_not_measured_is_nan() -> None:
    found = deployments([row(silicon_ttft_ms=None)], SPECS)
    assert np.isnan(next(iter(found.values())).ttft_ms).all()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"pp_size": 2}, "pipeline parallelism"),
        ({"attention_dp_size": 8}, "attention data parallelism"),
        ({"attention_dp_size": 0}, None),
    ],
)
def test_what_the_model_does_not_cover_is_told(changes: dict[str, int], reason: str | None) -> None:
    assert row(**changes).outside == reason


def test_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown GPU"):
        deployments([row(system="abacus")], SPECS)


@pytest.mark.parametrize("cell", [{"osl": 1}, {"silicon_tpot_ms": 0}, {"batch_size": 0}])
def test_a_row_that_is_no_measurement_is_refused(cell: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        row(**cell)


def test_blank_cells_say_nothing() -> None:
    assert empty_cells_out({"precision": " ", "isl": " 8 ", "osl": ""}) == {"isl": "8"}


def test_how_the_client_and_the_server_queue_reaches_the_load() -> None:
    rows = [row(), row(equal_lengths=False, batch_wait_iters=20)]
    load = next(iter(deployments(rows, SPECS).values())).load
    assert list(np.asarray(load.equal_lengths)) == [1, 0]
    assert list(np.asarray(load.batch_wait_iters)) == [0, 20]


def test_some_points_keep_what_is_said_of_them() -> None:
    rows = [row(batch_size=4), row(batch_size=16, equal_lengths=False, batch_wait_iters=20)]
    group = next(iter(deployments(rows, SPECS).values()))
    load = group.only(np.array([1])).load
    assert [load.batch, load.equal_lengths, load.batch_wait_iters] == [16, 0, 20]
    assert Load(np.array([4, 16]), 1024, 512).only(np.array([1])) == Load(16, 1024, 512)
