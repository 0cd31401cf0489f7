"""``specdeploy init``: write the file that a user starts from."""

from __future__ import annotations

from pathlib import Path

import click

from specdeploy import wiring
from specdeploy.cli import present
from specdeploy.cli.options import json_option, verbosity_options
from specdeploy.core.config import CONFIG_NAME, METHODS
from specdeploy.core.repository import Method
from specdeploy.workflows.init import InitRequest, init


@click.command("init")
@click.option("--target", required=True, metavar="PATH", help="The target: a folder or a Hub id.")
@click.option("--draft", metavar="PATH", help="The draft: a folder or a Hub id.")
@click.option("--method", type=click.Choice(METHODS), help="Default: draft_target with a draft.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=CONFIG_NAME,
    show_default=True,
    help="The file to write.",
)
@click.option("--force", is_flag=True, help="Replace the file when it is there already.")
@json_option
@verbosity_options
def command(
    target: str,
    *,
    draft: str | None,
    method: Method | None,
    output: Path,
    force: bool,
    as_json: bool,
    verbose: int,
    quiet: bool,
) -> None:
    """Write a short, commented specdeploy.yaml.

    \b
    Example:
      specdeploy init --target models/llama-8b --draft models/llama-1b
      specdeploy init --target models/llama-8b --method ngram -o chat.yaml
    """
    request = InitRequest(
        cwd=Path.cwd(), target=target, draft=draft, method=method, output=output, force=force
    )
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    started = init(request, files=wiring.config_files(), reporter=reporter)
    if as_json:
        present.print_json(started)
    elif not quiet:
        click.echo(started.file)
        reporter.note(f"next: specdeploy check {output}")
