"""``specdeploy stop``: stop the server of a workspace."""

from __future__ import annotations

from pathlib import Path

import click

from specdeploy import wiring
from specdeploy.cli import present
from specdeploy.cli.options import json_option, verbosity_options
from specdeploy.cli.places import find_workspace
from specdeploy.core.serving import StopReport
from specdeploy.workflows.stop import stop


@click.command("stop")
@click.argument("workspace", required=False, type=click.Path(path_type=Path))
@json_option
@verbosity_options
def command(workspace: Path | None, *, as_json: bool, verbose: int, quiet: bool) -> None:
    """Stop the server that WORKSPACE records.

    WORKSPACE is the folder (default: that of ./specdeploy.yaml, else ./.specdeploy), or a
    specdeploy.yaml. Waits until every process has ended. A server that is gone already only
    has its record and shared memory removed (exit 0); no record at all exits 7.

    \b
    Example:
      specdeploy stop
      specdeploy stop pair/.specdeploy --json
    """
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    folder = find_workspace(workspace, reporter)
    report = stop(folder, records=wiring.server_records(folder), launcher=wiring.server_launcher())
    if as_json:
        present.print_json(report)
    elif not quiet:
        click.echo(_sentence(report))


def _sentence(report: StopReport) -> str:
    if report.outcome == "stopped":
        return f"stopped the server with pid {report.pid}"
    return f"the server with pid {report.pid} was gone already; removed its record"
