"""``specdeploy tune``: how to serve a pair, and whether speculation pays."""

from __future__ import annotations

from pathlib import Path

import click

from specdeploy import wiring
from specdeploy.cli import present, settings
from specdeploy.cli.options import (
    config_argument,
    json_option,
    memory_limit_option,
    override_options,
    verbosity_options,
)
from specdeploy.cli.tune_tables import print_report
from specdeploy.core.tuner.plots import plots_of
from specdeploy.workflows.tune import TuneRequest, keep, tune_pair


@click.command("tune")
@config_argument
@override_options(
    "--target",
    "--draft",
    "--method",
    "--runtime",
    "--draft-length",
    "--max-batch-size",
    "--max-seq-len",
    "--precision",
    "--kv-dtype",
    "--tp",
    "--gpu",
    "--objective",
    "--workspace",
)
@click.option(
    "--acceptance",
    multiple=True,
    metavar="A|FILE",
    help="Chance that the next draft token is accepted, an acceptance.json, or preset:NAME; "
    "NAME=... is about one of several ways to draft (repeatable).",
)
@click.option(
    "--also",
    "drafts",
    multiple=True,
    metavar="PATH",
    help="Another draft checkpoint to compare (repeatable).",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Constants of the speed model, fitted to your own measurements.",
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measured tokens per second per request, by requests in flight; docs/tune.md.",
)
@memory_limit_option
@json_option
@verbosity_options
def command(
    config: Path | None,
    *,
    acceptance: tuple[str, ...],
    drafts: tuple[str, ...],
    calibration: Path | None,
    measured: Path | None,
    memory_limit: float | None,
    as_json: bool,
    verbose: int,
    quiet: bool,
) -> None:
    """Choose draft length, sizes and placement together.

    Looks at every combination of draft length, batch, tokens per pass, KV type and split,
    tensor parallelism, placement and way to draft on the GPU that is named (or is here), and
    tells the best one, what it depends on, and why the rest lost. `off` is an answer too.
    Writes tuning.json, tuning.svg and tuning.html into the workspace; `build` takes values
    written auto from there. Exits 4 when nothing fits. No acceptance is ever made up:
    docs/tune.md says how to get one.

    \b
    Example:
      specdeploy tune pair.yaml --gpu h100-sxm --acceptance acceptance.json
      specdeploy tune --target T --draft D --gpu h200 --acceptance 0.7 --objective cost --json
    """
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    loaded = settings.load(config, reporter, writes_tuning=True)
    request = TuneRequest(
        settings=loaded,
        cwd=Path.cwd(),
        acceptance=acceptance,
        drafts=drafts,
        calibration=calibration,
        measured=measured,
        memory_limit=memory_limit,
    )
    tools = wiring.tune_tools()
    report = tune_pair(request, tools=tools)
    path = keep(report, plots_of(report), Path(loaded.workspace), tools.files)
    for warning in report.warnings:
        reporter.warning(warning)
    reporter.file_written("wrote", path)
    if as_json:
        present.print_json(report)
    elif not quiet:
        print_report(report, path)
