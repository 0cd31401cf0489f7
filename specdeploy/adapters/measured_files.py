"""Read measured points from CSV; write calibrations."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

from pydantic import ValidationError

from specdeploy.adapters.config_files import read_text
from specdeploy.adapters.durable import explained, staging_sibling
from specdeploy.core.speed import Calibration
from specdeploy.core.speed.rows import MeasuredRow, empty_cells_out
from specdeploy.errors import ConfigError

_NEEDED: Final = tuple(
    name for name, field in MeasuredRow.model_fields.items() if field.is_required()
)
_BOM: Final = "\ufeff"


@final
class LocalMeasuredFiles:
    """Files on this machine."""

    def read_measured(self, path: Path) -> list[MeasuredRow]:
        """Return the rows of a CSV file with the columns of ``MeasuredRow``; others are ignored.

        Raises:
            ConfigError: unreadable, a needed column is missing, or a row is not a measurement;
                names the line.
        """
        reader = csv.DictReader(io.StringIO(read_text(path).removeprefix(_BOM), newline=""))
        missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise ConfigError(
                f"{path} has no column {', '.join(missing)}",
                hint=f"needed: {', '.join(_NEEDED)}; the first line names the columns",
            )
        try:
            return [_row(cells, f"{path}:{reader.line_num}") for cells in reader]
        except csv.Error as error:
            raise ConfigError(f"{path}:{reader.line_num}: {error}") from None

    def write_calibration(self, path: Path, calibration: Calibration) -> None:
        """Write a calibration whole or not at all; a link is followed.

        Raises:
            ConfigError: it cannot be written, or a directory or a device is there.
        """
        with explained(path):
            path = Path(os.path.realpath(path))
            # A rename would put a file in the place of a device.
            if path.exists() and not path.is_file():
                raise ConfigError(f"cannot write {path}: it is there and no file")
            fresh = staging_sibling(path)
            try:
                with fresh.open("x", encoding="utf-8") as stream:
                    stream.write(calibration.model_dump_json(indent=2) + "\n")
                    stream.flush()
                    os.fsync(stream.fileno())
                fresh.replace(path)
            finally:
                fresh.unlink(missing_ok=True)


def _row(cells: Mapping[str | None, object], place: str) -> MeasuredRow:
    # What is beyond the named columns has no name, and a line that ends early has no cells.
    named = {name: cell for name, cell in cells.items() if name and isinstance(cell, str)}
    try:
        return MeasuredRow.model_validate(empty_cells_out(named))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        column = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{place}: {column}: {first['msg']}") from None
