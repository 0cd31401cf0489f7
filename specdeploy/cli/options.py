"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

# Where an invocation keeps what its overriding options said, until the file is read.
FLAGS_KEY: Final = "specdeploy.flags"
TUNING_KEY: Final = "specdeploy.tuning"


@dataclass(frozen=True, slots=True)
class Override:
    """A flag that sets settings of ``specdeploy.yaml``, by their dotted keys."""

    flag: str
    keys: tuple[str, ...]
    metavar: str
    help: str


OVERRIDES: Final = (
    Override("--target", ("target.path",), "PATH", "The target's checkpoint."),
    Override("--draft", ("draft.path",), "PATH", "The draft's checkpoint."),
    Override("--method", ("method",), "METHOD", "draft_target, ngram or none."),
    Override("--runtime", ("runtime.name",), "NAME", "engine, llmapi or reference."),
    Override("--shape", ("runtime.shape",), "SHAPE", "engine or llmapi (reference only)."),
    Override("--draft-length", ("draft_length",), "K|auto", "Tokens proposed per step."),
    Override("--max-batch-size", ("limits.max_batch_size",), "N|auto", "Requests held at once."),
    Override("--max-seq-len", ("limits.max_seq_len",), "N|auto", "Prompt + output tokens."),
    Override("--precision", ("target.precision", "draft.precision"), "P", "Of both models."),
    Override("--tp", ("target.tp", "draft.tp"), "N", "Tensor parallelism of both models."),
    Override("--kv-dtype", ("target.kv_dtype", "draft.kv_dtype"), "K", "KV cache of both models."),
    Override("--gpu", ("hardware.gpu",), "NAME", "The GPU to plan for."),
    Override("--objective", ("objective",), "O", "latency, throughput or cost."),
    Override("--workspace", ("workspace",), "DIR", "Folder for everything that is made."),
)
_FLAGS: Final = {override.flag: override for override in OVERRIDES}


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
    """Add ``-v`` (more progress) and ``-q`` (no report and no progress)."""
    command = click.option("-v", "--verbose", count=True, help="Show more progress (repeatable).")(
        command
    )
    return click.option(
        "-q",
        "--quiet",
        is_flag=True,
        help="Print nothing but errors, an answer's text, and what --json asks for.",
    )(command)


def memory_limit_option(command: Command) -> Command:
    """Add ``--memory-limit``, a share of each whole GPU."""
    return click.option(
        "--memory-limit",
        type=float,
        metavar="SHARE",
        help="Fill at most this share of each GPU's total memory, other processes included; "
        "default: 0.9 of what is free after loading goes to the KV cache.",
    )(command)


def seconds_option(
    flag: str,
    *,
    zero: bool = False,
    **settings: Any,  # noqa: ANN401 - click's own
) -> Callable[[Command], Command]:
    """Add an option that takes a finite number of seconds; 0 only with ``zero``."""

    def finite(
        context: click.Context, parameter: click.Parameter, value: float | None
    ) -> float | None:
        if value is not None and not math.isfinite(value):
            raise click.BadParameter(f"{value} is not a number of seconds.", context, parameter)
        return value

    kind = click.FloatRange(min=0, min_open=not zero)
    return click.option(flag, type=kind, metavar="SECONDS", callback=finite, **settings)


def override_options(*flags: str) -> Callable[[Command], Command]:
    """Add the named flags of ``OVERRIDES`` (all when none is named), ``--set`` and ``--tuning``.

    The command's function does not see them: ``specdeploy.cli.settings.load`` applies them.
    """

    def decorate(command: Command) -> Command:
        command = click.option(
            "--tuning",
            type=click.Path(path_type=Path),
            metavar="FILE",
            expose_value=False,
            callback=_keep_tuning,
            help="Take values written auto from this tuning.json.",
        )(command)
        command = click.option(
            "--set",
            multiple=True,
            metavar="KEY=VALUE",
            expose_value=False,
            callback=_keep_assignments,
            help="Set any setting, such as sampling.top_k=8 (repeatable).",
        )(command)
        for flag in reversed(flags or tuple(_FLAGS)):
            command = _option(_FLAGS[flag])(command)
        return command

    return decorate


def _option(override: Override) -> Callable[[Command], Command]:
    def keep(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            _kept(context).extend((override.flag, key, value) for key in override.keys)

    return click.option(
        override.flag,
        metavar=override.metavar,
        expose_value=False,
        callback=keep,
        help=override.help,
    )


def _keep_tuning(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    context.meta[TUNING_KEY] = value


def _keep_assignments(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> None:
    for assignment in values:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise click.BadParameter(f"{assignment!r} is not KEY=VALUE", context, parameter)
        _kept(context).append((f"--set {key}", key, text))


def _kept(context: click.Context) -> list[tuple[str, str, str]]:
    flags: list[tuple[str, str, str]] = context.meta.setdefault(FLAGS_KEY, [])
    return flags
