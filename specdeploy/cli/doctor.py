"""``specdeploy doctor``: is everything here, and what to do if not."""

from __future__ import annotations

from pathlib import Path

import click

from specdeploy import wiring
from specdeploy.cli import present, settings
from specdeploy.cli.options import (
    FLAGS_KEY,
    config_argument,
    json_option,
    override_options,
    verbosity_options,
)
from specdeploy.core.config import CONFIG_NAME
from specdeploy.core.doctor import DoctorLine, DoctorReport
from specdeploy.core.resolution import LoadedConfig
from specdeploy.events import Reporter
from specdeploy.workflows.doctor import DoctorRequest, doctor


@click.command("doctor")
@config_argument
@override_options("--runtime", "--gpu", "--workspace")
@json_option
@verbosity_options
def command(config: Path | None, *, as_json: bool, verbose: int, quiet: bool) -> None:
    """See whether this machine has what the runtime needs.

    Looks at Python, tools and their versions, GPUs (memory, who holds it, what CUDA sees),
    containers, disk, shared memory and limits, and says what to do about each thing that is
    not as it should be (with -v: about everything). Without a GPU, plans go on from the one
    that --gpu names. Exits 5 when something that the runtime needs is missing.

    \b
    Example:
      specdeploy doctor
      specdeploy doctor --runtime engine --gpu h100-sxm
      specdeploy doctor pair.yaml --json
    """
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    loaded = _load(config, reporter)
    request = DoctorRequest(
        runtime=loaded.config.runtime.name,
        workspace=Path(loaded.workspace),
        gpu=loaded.config.hardware.gpu,
    )
    report = doctor(request, wiring.doctor_tools())
    if as_json:
        present.print_json(report)
    elif not quiet:
        _print(report, remedies=verbose > 0)
    report.raise_if_missing()


def _load(config: Path | None, reporter: Reporter) -> LoadedConfig:
    """Read the settings; before there is a file, those of any target."""
    if config is None and not Path(CONFIG_NAME).exists():
        flags = click.get_current_context().meta.setdefault(FLAGS_KEY, [])
        flags.append(("--target", "target.path", "any"))
    return settings.load(config, reporter)


def _print(report: DoctorReport, *, remedies: bool) -> None:
    for line in report.lines:
        _print_line(line, remedies=remedies)
    state = "everything needed is here" if report.ready else "something needed is missing"
    click.echo(f"\n{report.runtime} runtime: {state}")


def _print_line(line: DoctorLine, *, remedies: bool) -> None:
    click.echo(f"{line.status:<8} {line.name:<14} {line.found}")
    if remedies or line.status != "ok":
        click.echo(f"{'':<23} -> {line.remedy}")
