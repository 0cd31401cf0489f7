"""``specdeploy schema``: the JSON Schema of a file or of a command's output."""

from __future__ import annotations

import click

from specdeploy.cli import present
from specdeploy.cli.options import json_option
from specdeploy.core.nearest import did_you_mean
from specdeploy.errors import ConfigError
from specdeploy.schemas import SCHEMAS, SchemaList, json_schema


@click.command("schema")
@click.argument("name", default="config", metavar="[NAME]")
@click.option("--list", "list_names", is_flag=True, help="List the names instead.")
@json_option
def command(name: str, *, list_names: bool, as_json: bool) -> None:
    """Print the JSON Schema of specdeploy.yaml, or of another file or output by NAME.

    An editor with a YAML language server checks a file whose first line is
    `# yaml-language-server: $schema=specdeploy.schema.json`.

    \b
    Example:
      specdeploy schema > specdeploy.schema.json
      specdeploy schema manifest
    """
    if list_names:
        _print_names(as_json=as_json)
        return
    if name not in SCHEMAS:
        raise ConfigError(
            f"there is no schema {name!r}{did_you_mean(name, SCHEMAS)}",
            hint=f"known: {', '.join(SCHEMAS)}",
        )
    present.print_json(json_schema(name))


def _print_names(*, as_json: bool) -> None:
    if as_json:
        present.print_json(SchemaList(schemas=list(SCHEMAS)))
    else:
        click.echo("\n".join(SCHEMAS))
