"""Measurements are read from CSV, and calibrations written whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specdeploy.adapters.measured_files import LocalMeasuredFiles
from specdeploy.core.speed import Calibration
from specdeploy.core.speed.calibration import CalibrationErrors
from specdeploy.core.speed.rows import MeasuredRow
from specdeploy.errors import ConfigError

HEAD = "model_path,system,precision,tp_size,isl,osl,batch_size,silicon_ttft_ms,silicon_tpot_ms\n"


def read(folder: Path, text: str) -> list[MeasuredRow]:
    path = folder / "measured.csv"
    path.write_bytes(text.encode())
    return LocalMeasuredFiles().read_measured(path)


def test_rows_are_read_by_the_names_of_their_columns(tmp_path: Path) -> None:
    turned = (
        "silicon_tpot_ms,osl,isl,batch_size,system,model_path,remark\n9.5,512,1024,8,h100,m,x\n"
    )
    (row,) = read(tmp_path, turned)
    assert (row.isl, row.osl, row.batch_size, row.silicon_tpot_ms) == (1024, 512, 8, 9.5)


def test_blank_cells_take_the_default(tmp_path: Path) -> None:
    (row,) = read(tmp_path, HEAD + "m,h100,,,1024,512,8,,9.5\n")
    assert (row.precision, row.tp_size, row.silicon_ttft_ms) == ("bf16", 1, None)


@pytest.mark.parametrize(
    "text", ["\ufeff" + HEAD + "m,h100,,,9,9,9,,9\n", HEAD + "m,h100,,,9,9,9,,9,z\n"]
)
def test_files_of_spreadsheets_are_read(tmp_path: Path, text: str) -> None:
    assert len(read(tmp_path, text)) == 1


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no column isl, osl"):
        read(tmp_path, "model_path,system,batch_size,silicon_tpot_ms\n")


def test_an_empty_file_lacks_columns(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no column model_path"):
        read(tmp_path, "")


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("m,h100,,,many,512,8,,9.5", "measured.csv:3: isl"),
        ("m,h100,,,1024,512,8,,nan", "measured.csv:3: silicon_tpot_ms"),
        ("m,h100", "measured.csv:3: isl"),
    ],
)
def test_a_row_that_is_no_measurement_is_named_by_its_line(
    tmp_path: Path, cells: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        read(tmp_path, HEAD + "m,h100,,,1024,512,8,,9.5\n" + cells + "\n")


def test_a_file_that_is_no_csv_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"measured\.csv"):
        read(tmp_path, HEAD + "x" * 200_000 + "\n")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.csv"):
        LocalMeasuredFiles().read_measured(tmp_path / "none.csv")


def calibration(points: int) -> Calibration:
    errors = CalibrationErrors(tpot=0.2)
    return Calibration(values={"layer_s": 1e-5}, points=points, before=errors, after=errors)


def test_a_calibration_reads_back_and_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    for points in (4, 12):
        LocalMeasuredFiles().write_calibration(path, calibration(points))
        assert Calibration.model_validate_json(path.read_text()) == calibration(points)
    assert [file.name for file in tmp_path.iterdir()] == ["calibration.json"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        LocalMeasuredFiles().write_calibration(tmp_path / "no" / "c.json", calibration(4))


@pytest.mark.parametrize("name", ["pipe", "folder", "."])
def test_what_is_no_file_is_not_replaced_by_a_calibration(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="it is there and no file"):
        LocalMeasuredFiles().write_calibration(tmp_path / name, calibration(4))
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_to_a_calibration_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("real.json")
    LocalMeasuredFiles().write_calibration(tmp_path / "link.json", calibration(4))
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").is_file()
