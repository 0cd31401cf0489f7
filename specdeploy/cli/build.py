"""``specdeploy build``: plan a pair's artifacts, then make what is stale."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from specdeploy import wiring
from specdeploy.cli import present, settings
from specdeploy.cli.options import (
    config_argument,
    json_option,
    override_options,
    seconds_option,
    verbosity_options,
)
from specdeploy.core.artifacts import BuildReport, Reason, RepositoryReport, StepReport
from specdeploy.core.resolution import LoadedConfig
from specdeploy.events import Reporter
from specdeploy.runtimes import RUNTIMES
from specdeploy.units import format_bytes
from specdeploy.workflows.build import BuildRequest, Part, build, preview
from specdeploy.workflows.check import CheckRequest, check
from specdeploy.workflows.release import require_tools


@click.command("build")
@config_argument
@click.option("--only", type=click.Choice(get_args(Part)), help="Make one part only.")
@click.option("--dry-run", is_flag=True, help="Print the plan; write nothing.")
@click.option("--explain", is_flag=True, help="Say what is stale and why; write nothing.")
@seconds_option(
    "--lock-timeout",
    zero=True,
    default=3600.0,
    show_default=True,
    help="How long to wait for another build of the same workspace.",
)
@override_options()
@json_option
@verbosity_options
def command(
    config: Path | None,
    *,
    only: Part | None,
    dry_run: bool,
    explain: bool,
    lock_timeout: float,
    as_json: bool,
    verbose: int,
    quiet: bool,
) -> None:
    """Build the pair and render its Triton repository.

    Checks the pair first. Engines are kept by the digest of all that decides them (sources,
    settings, command, tool versions): what is there already is reused, whatever is stale is
    built beside and moved into place whole. An interrupted build is simply run again.

    \b
    Example:
      specdeploy build
      specdeploy build pair.yaml --dry-run
      specdeploy build --draft-length 4 --explain
    """
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    loaded = settings.load(config, reporter)
    _require_compatible(loaded, reporter)
    deployment = settings.resolve(loaded)
    request = BuildRequest(deployment=deployment, runtime=RUNTIMES[deployment.runtime], only=only)
    bench = wiring.workbench(Path(loaded.workspace), reporter=reporter, lock_timeout_s=lock_timeout)
    if not (dry_run or explain):
        _require_tools(request)
    report = preview(request, bench) if dry_run or explain else build(request, bench)
    if as_json:
        present.print_json(report)
    elif explain:
        _print_reasons(report)
    elif dry_run:
        _print_plan(report)
    elif not quiet:
        _print_result(report)


def _require_tools(request: BuildRequest) -> None:
    """A host that only renders the repository needs no tools."""
    if request.only != "repository":
        require_tools(request.deployment, host=wiring.installed_trtllm())


def _require_compatible(loaded: LoadedConfig, reporter: Reporter) -> None:
    """Check the pair before anything is written; what blocks is told, even with ``-q``."""
    report = check(CheckRequest(loaded), tools=wiring.check_tools())
    for finding in report.findings:
        sentence = f"{finding.code}: {finding.message}"
        if finding.severity == "error":
            click.echo(f"error: {sentence}", err=True)
        elif finding.severity == "warning":
            reporter.warning(sentence)
    report.raise_if_blocking()


def _print_plan(report: BuildReport) -> None:
    for step in report.steps:
        _print_step(step)
    if report.repository is not None:
        _print_repository(report.repository)


def _print_step(step: StepReport) -> None:
    click.echo(f"{step.action} {step.title}")
    click.echo(f"  command  {shlex.join(step.command)}")
    for source in step.inputs:
        size = format_bytes(source.size_bytes)
        click.echo(f"  input    {source.path}  {size}  sha256 {source.sha256[:12]}")
    click.echo(f"  output   {step.output}")
    if step.disk_bytes:
        click.echo(f"  disk     about {format_bytes(step.disk_bytes)}")
    for change in step.changes:
        click.echo(
            f"  change   {change.setting} {change.asked} becomes {change.becomes}: {change.reason}"
        )
    for note in step.notes:
        click.echo(f"  note     {note}")


def _print_repository(repository: RepositoryReport) -> None:
    click.echo(f"{repository.action} repository (entry model {repository.entry_model})")
    click.echo(f"  output   {repository.path}")
    for path in repository.files:
        click.echo(f"  file     {path}")
    for setting in repository.lossy:
        click.echo(f"  lossy    with {setting} the answers are not the target's own")
    for note in repository.notes:
        click.echo(f"  note     {note}")
    if repository.serve_command:
        click.echo(f"  without Triton  {shlex.join(repository.serve_command)}")


def _print_reasons(report: BuildReport) -> None:
    for step in report.steps:
        _print_verdict(step.title, step.reasons)
    if report.repository is not None:
        _print_verdict("repository", report.repository.reasons)


def _print_verdict(name: str, reasons: Sequence[Reason]) -> None:
    click.echo(f"{name}: {'stale' if reasons else 'up to date'}")
    for reason in reasons:
        click.echo(f"  {reason.sentence}")


def _print_result(report: BuildReport) -> None:
    for step in report.steps:
        done = "reused" if step.action == "reuse" else "built"
        click.echo(f"{step.title:<11} {done:<8} {step.output}")
    if report.repository is not None:
        done = "reused" if report.repository.action == "reuse" else "rendered"
        click.echo(f"{'repository':<11} {done:<8} {report.repository.path}")
