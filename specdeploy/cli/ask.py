"""``specdeploy ask``: stream one answer from a running server."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from pydantic import ValidationError

from specdeploy import wiring
from specdeploy.cli import present
from specdeploy.cli.options import json_option, seconds_option, verbosity_options
from specdeploy.cli.places import find_workspace
from specdeploy.client import Client
from specdeploy.core.generation import Answer, GenerationOptions, GenerationResult
from specdeploy.errors import ConfigError
from specdeploy.events import Reporter
from specdeploy.units import format_ms
from specdeploy.workflows.ask import find_server


@click.command("ask")
@click.argument("prompt")
@click.option("--url", metavar="HOST:PORT", help="gRPC address. [default: the workspace's server]")
@click.option("--workspace", type=click.Path(path_type=Path), metavar="DIR", help="Whose server.")
@click.option("--model", metavar="NAME", help="The model to ask; found by itself when left out.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="The longest answer, in tokens.",
)
@click.option(
    "--draft-length",
    type=click.IntRange(min=0),
    metavar="K",
    help="Tokens drafted per step; 0 switches speculation off.",
)
@click.option("--temperature", type=click.FloatRange(min=0), help="0 is greedy.")
@click.option("--top-k", type=click.IntRange(min=0), help="0 keeps every token.")
@click.option(
    "--top-p", type=click.FloatRange(min=0, max=1, min_open=True), help="1 keeps every token."
)
@click.option("--seed", type=click.IntRange(min=0), help="Makes a sampled answer repeatable.")
@click.option("--stop", "stop_words", multiple=True, metavar="WORD", help="End before WORD.")
@click.option("--stream/--no-stream", default=True, help="Show text as it comes, or at the end.")
@seconds_option(
    "--timeout",
    default=120.0,
    show_default=True,
    help="The longest to wait for the whole answer.",
)
@json_option
@verbosity_options
def command(
    prompt: str,
    *,
    url: str | None,
    workspace: Path | None,
    model: str | None,
    timeout: float,
    as_json: bool,
    verbose: int,
    quiet: bool,
    **options: object,
) -> None:
    """Stream the answer to PROMPT from a running server.

    PROMPT - reads it from standard input. The text goes to stdout as it comes; one line of
    figures follows on stderr. Exits 8 when no server answers in time.

    \b
    Example:
      specdeploy ask "def fibonacci(n):" --max-tokens 64
      specdeploy ask - --url 127.0.0.1:8001 --draft-length 0 --json < prompt.txt
    """
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    text = _prompt(prompt)
    asked = _options(options)
    address = url or _address(workspace, reporter)
    with wiring.connect_to_server(address, timeout_s=timeout, model=model) as client:
        result = _generate(client, text, asked, show=not as_json)
    answer = Answer.of(result, url=address)
    if as_json:
        present.print_json(answer)
    elif not quiet:
        click.echo(_figures(answer), err=True)


def _options(given: dict[str, object]) -> GenerationOptions:
    try:
        return GenerationOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}") from error


def _prompt(given: str) -> str:
    try:
        text = sys.stdin.buffer.read().decode() if given == "-" else given
        text.encode()
    except UnicodeError as error:
        raise ConfigError(f"the prompt is not UTF-8: {error}") from error
    if not text:
        raise ConfigError("the prompt is empty", hint="give some text to continue")
    return text


def _address(workspace: Path | None, reporter: Reporter) -> str:
    folder = find_workspace(workspace, reporter)
    record = find_server(
        folder, records=wiring.server_records(folder), launcher=wiring.server_launcher()
    )
    return record.endpoints.grpc


def _generate(
    client: Client, prompt: str, options: GenerationOptions, *, show: bool
) -> GenerationResult:
    with client.stream(prompt, options) as stream:
        last = "\n"
        for chunk in stream:
            if show and chunk.text:
                # As bytes: the terminal's encoding may not know every character.
                click.echo(chunk.text.encode(), nl=False)
                last = chunk.text
        if show and not last.endswith("\n"):
            click.echo()
        return stream.result()


def _figures(answer: Answer) -> str:
    return ", ".join(
        [
            f"{_number(answer.output_tokens, 'd')} tokens",
            f"{_number(answer.tokens_per_second, '.1f')} tokens/s",
            f"TTFT {'-' if answer.ttft_s is None else format_ms(answer.ttft_s)}",
            f"acceptance rate {_number(answer.acceptance_rate, '.2f')}",
            f"{_number(answer.tokens_per_step, '.2f')} tokens per step",
        ]
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
