"""``specdeploy verify``: re-hash what was built."""

from __future__ import annotations

from pathlib import Path

import click

from specdeploy import wiring
from specdeploy.cli import present
from specdeploy.cli.options import json_option, verbosity_options
from specdeploy.core.artifacts import ArtifactCheck, VerifyReport
from specdeploy.workflows.verify import require_whole, verify


@click.command("verify")
@click.argument("path", type=click.Path(path_type=Path))
@json_option
@verbosity_options
def command(path: Path, *, as_json: bool, verbose: int, quiet: bool) -> None:
    """Re-hash a built artifact against its manifest.

    PATH is an engine, the engines of one digest, a repository or a whole workspace. Every file
    is read. Missing, extra and changed files are named, and so are absolute paths in a
    repository's files that no longer exist. Exits 7 on any difference.

    \b
    Example:
      specdeploy verify .specdeploy
      specdeploy verify .specdeploy/repository --json
    """
    del verbose
    report = verify(path.absolute(), artifacts=wiring.fresh_artifacts())
    if as_json:
        present.print_json(report)
    elif not quiet:
        _print(report)
    require_whole(report)


def _print(report: VerifyReport) -> None:
    for check in report.artifacts:
        _print_check(check)


def _print_check(check: ArtifactCheck) -> None:
    state = "different" if check.differences else "whole"
    click.echo(f"{state:<9}  {check.kind:<10}  {check.files:>3} files  {check.path}")
    for difference in check.differences:
        click.echo(f"  {difference.kind:<10}  {difference.path}: {difference.message}")
