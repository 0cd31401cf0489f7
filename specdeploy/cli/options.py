"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def config_argument(command: Command) -> Command:
    """Add the optional CONFIG argument; the default is ./specdeploy.yaml."""
    return click.argument(
        "config", required=False, type=click.Path(path_type=Path), metavar="[CONFIG]"
    )(command)


def json_option(command: Command) -> Command:
    """Add ``--json``: stdout then holds exactly one JSON document."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document on stdout."
    )(command)


def verbosity_options(command: Command) -> Command:
    """Add ``-v`` (more progress) and ``-q`` (errors only)."""
    command = click.option("-v", "--verbose", count=True, help="Show more progress (repeatable).")(
        command
    )
    return click.option("-q", "--quiet", is_flag=True, help="Show errors only.")(command)
