"""The command line: parse, call one workflow, present one record.

Every import made here is paid by ``--help``; a command's module is imported when it is run.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import traceback
from typing import Final

import click
from typing_extensions import override

from specdeploy import __version__
from specdeploy.errors import ConfigError, SpecdeployError

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

# name -> (module, one line for the overview). The line stands here so that `--help` does
# not import every command.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": ("specdeploy.cli.init", "Write a short, commented specdeploy.yaml."),
    "config": ("specdeploy.cli.config", "Show the effective settings and where each came from."),
    "schema": ("specdeploy.cli.schema", "Print the JSON Schema of a file."),
    "inspect": ("specdeploy.cli.inspect", "Read a checkpoint: parameters, weights, KV cache."),
    "check": ("specdeploy.cli.check", "Tell whether a draft and a target belong together."),
    "doctor": ("specdeploy.cli.doctor", "See whether this machine has what the runtime needs."),
    "estimate": ("specdeploy.cli.estimate", "Predict memory and speed of a deployment."),
    "tune": ("specdeploy.cli.tune", "Choose draft length, sizes and placement together."),
    "calibrate": ("specdeploy.cli.calibrate", "Fit predicted speed to your own measurements."),
    "build": ("specdeploy.cli.build", "Build the pair and render its Triton repository."),
    "verify": ("specdeploy.cli.verify", "Re-hash a built artifact against its manifest."),
    "serve": ("specdeploy.cli.serve", "Serve a repository on tritonserver."),
    "stop": ("specdeploy.cli.stop", "Stop a server that runs detached."),
    "ask": ("specdeploy.cli.ask", "Stream one answer from a running server."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are first needed."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command = module.command
        assert isinstance(command, click.Command)  # noqa: S101 - a broken table is a bug
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="specdeploy")
def cli() -> None:
    """Deploy large language models with speculative decoding on Triton."""
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except OSError as error:
        raise ConfigError(
            f"the current folder cannot be used: {error.strerror}", hint="change to another one"
        ) from error


def main() -> None:
    """Run the command line; the one place where errors become text and a status."""
    # The bytes of a file name that are no text are written as escapes, in JSON too.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(run())
    except BrokenPipeError:
        # The reader of stdout went away (`| head`): nothing is left to say to it.
        sys.stderr.close()
        sys.exit(141)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: The words after the program's name; None takes them from ``sys.argv``.
    """
    try:
        cli.main(args=arguments, prog_name="specdeploy", standalone_mode=False)
    except SpecdeployError as error:
        return _report(str(error), error.hint, error.exit_code)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        error.show(file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _report("interrupted", None, 130)
    except BrokenPipeError:
        raise
    except SystemExit as leaving:
        # click's own answer to a reader of stdout that went away
        raise BrokenPipeError from leaving
    except Exception as error:  # noqa: BLE001 - the boundary: anything else is a bug
        return _report_unexpected(error)
    return 0


def _report_unexpected(error: Exception) -> int:
    # An error of the system that names no file is one of writing what was printed.
    if isinstance(error, OSError) and error.filename is None and error.errno in FULL:
        return _report(f"cannot write to standard output: {error.strerror}", None, 2)
    traceback.print_exc()
    return _report("this is a bug in specdeploy", "please report the lines above", 70)


def _report(message: str, hint: str | None, status: int) -> int:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    return status
