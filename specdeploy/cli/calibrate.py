"""``specdeploy calibrate``: the speed model, fitted to a user's own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from specdeploy import wiring
from specdeploy.cli import present
from specdeploy.cli.options import json_option, verbosity_options
from specdeploy.core.speed import Calibration
from specdeploy.core.speed.constants import BY_NAME
from specdeploy.workflows.calibrate import CalibrateRequest, calibrate_speed

DEFAULT_OUTPUT: Final = Path("calibration.json")


def _models(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    del context
    pairs = [value.partition("=") for value in values]
    if any(not (name and mark and path) for name, mark, path in pairs):
        raise click.BadParameter("write NAME=PATH", param=parameter)
    return {name: path for name, _, path in pairs}


@click.command("calibrate")
@click.argument("measured", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=DEFAULT_OUTPUT,
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--model",
    "models",
    metavar="NAME=PATH",
    multiple=True,
    callback=_models,
    help="Checkpoint of the rows whose model_path is NAME (repeatable).",
)
@json_option
@verbosity_options
def command(
    measured: tuple[Path, ...],
    *,
    output: Path,
    models: dict[str, str],
    as_json: bool,
    verbose: int,
    quiet: bool,
) -> None:
    """Fit the speed model to measured points; write a file for --calibration.

    MEASURED are CSV files with the columns model_path, system (the GPU), precision, tp_size,
    isl, osl, batch_size (concurrent clients), silicon_ttft_ms and silicon_tpot_ms. Ten points of
    one server at different concurrencies and lengths are plenty. Errors are told on points that
    were left out of the fit; where a fit does not make those less, nothing moves.

    \b
    Example:
      specdeploy calibrate measured.csv
      specdeploy calibrate measured.csv --model my-llama=./llama -o h100.json
    """
    request = CalibrateRequest(measured=measured, output=output, models=models)
    result = calibrate_speed(request, tools=wiring.calibrate_tools())
    if as_json:
        present.print_json(result)
        return
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    for note in result.notes:
        reporter.note(note)
    reporter.file_written("wrote", output)
    if not quiet:
        _print_tables(result)


def _print_tables(result: Calibration) -> None:
    # rich costs as much as click to import, and only tables need it.
    from rich.table import Table  # noqa: PLC0415

    errors = Table(title=f"error on {result.points} points", title_justify="left")
    for heading in ("", "before", "calibrated, on points left out"):
        errors.add_column(heading, justify="left" if not heading else "right")
    errors.add_row("time per token", _share(result.before.tpot), _share(result.after.tpot))
    errors.add_row("time to first token", _share(result.before.ttft), _share(result.after.ttft))
    console = present.console()
    console.print(errors)
    if not result.values:
        return
    moved = Table(title="constants", title_justify="left")
    for heading in ("", "unit", "before", "calibrated"):
        moved.add_column(
            heading, justify="right" if heading in {"before", "calibrated"} else "left"
        )
    for name, value in result.values.items():
        constant = BY_NAME[name]
        moved.add_row(constant.meaning, constant.unit, f"{constant.value:.3g}", f"{value:.3g}")
    console.print(moved)


def _share(error: float | None) -> str:
    return "not measured" if error is None else f"{error:.1%}"
