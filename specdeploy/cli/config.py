"""``specdeploy config``: the effective settings, and where each came from."""

from __future__ import annotations

import json
from pathlib import Path

import click

from specdeploy import wiring
from specdeploy.cli import present, settings
from specdeploy.cli.options import (
    config_argument,
    json_option,
    override_options,
    verbosity_options,
)
from specdeploy.core.effective import EffectiveSettings, effective_settings
from specdeploy.core.resolution import LoadedConfig
from specdeploy.errors import ConfigError
from specdeploy.events import Reporter
from specdeploy.workflows.deployment import read_pair


@click.command("config")
@config_argument
@override_options()
@json_option
@verbosity_options
def command(config: Path | None, *, as_json: bool, verbose: int, quiet: bool) -> None:
    """Show the effective settings and where each came from.

    Settings come from defaults, the file, the environment and flags; the later wins. A variable
    is named after its key: SPECDEPLOY_DRAFT_LENGTH, SPECDEPLOY_TARGET__PATH. Values written
    auto are decided by --tuning, the workspace's tuning.json, the checkpoints, or a default.

    \b
    Example:
      specdeploy config
      SPECDEPLOY_DRAFT_LENGTH=6 specdeploy config pair.yaml --method ngram --json
    """
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    shown = _effective(settings.load(config, reporter), reporter)
    if as_json:
        present.print_json(shown)
    elif not quiet:
        _print_table(shown)


def _effective(loaded: LoadedConfig, reporter: Reporter) -> EffectiveSettings:
    """Return the settings; without readable checkpoints, with what is known so far."""
    try:
        target, draft = read_pair(
            loaded, checkpoints=wiring.checkpoint_reader(), hub=wiring.hub_resolver()
        )
    except ConfigError as error:
        reporter.warning(f"what the checkpoints decide is left out: {error}")
        return effective_settings(loaded, target=None, draft=None)
    return effective_settings(loaded, target=target, draft=draft)


def _print_table(shown: EffectiveSettings) -> None:
    rows = [(s.key, json.dumps(s.value, ensure_ascii=False), str(s.source)) for s in shown.settings]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, value, source in rows:
        click.echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {source}")
