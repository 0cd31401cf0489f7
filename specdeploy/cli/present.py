"""Records become tables, JSON and progress lines; the only module that formats for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from typing_extensions import override

from specdeploy.core.record import Record
from specdeploy.events import Reporter

if TYPE_CHECKING:
    from rich.console import Console

    from specdeploy.core.tuning import DraftCosts


def print_json(value: Record | dict[str, object]) -> None:
    """Write one JSON document, and nothing else, to stdout."""
    plain = value.model_dump(mode="json") if isinstance(value, Record) else value
    click.echo(json.dumps(plain, indent=2, ensure_ascii=False))


def console(*, stderr: bool = False) -> Console:
    """Return a rich console; colour appears on a terminal only and never with NO_COLOR."""
    # rich costs as much as click to import, and only tables need it.
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def draft_costs(costs: DraftCosts | None) -> Iterator[str]:
    """Yield what a draft step costs at each tensor parallelism, and what to do about it."""
    if costs is None:
        return
    for cost in costs.by_tp:
        yield (
            f"a draft step at tp {cost.tp}: {cost.step_ms:.2f} ms, {cost.cost_ratio:.3f} of a "
            "target step"
        )
    if costs.warning is not None:
        yield costs.warning


class TerminalReporter(Reporter):
    """Progress on stderr. Level 0 shows warnings and stages, 1 adds commands, 2 their output."""

    def __init__(self, *, verbose: int = 0, quiet: bool = False) -> None:
        self._level = -1 if quiet else verbose

    def _say(self, text: str, *, level: int = 0) -> None:
        if level <= self._level:
            click.echo(text, err=True)

    @override
    def stage_started(self, stage: str) -> None:
        self._say(f"{stage} ...")

    @override
    def stage_finished(self, stage: str, *, seconds: float) -> None:
        self._say(f"{stage}: done in {seconds:.1f} s")

    @override
    def note(self, message: str) -> None:
        self._say(f"note: {message}")

    @override
    def warning(self, message: str) -> None:
        self._say(f"warning: {message}")

    @override
    def command_started(self, argv: Sequence[str], *, log: Path) -> None:
        self._say(f"running {argv[0]} (log: {log})", level=1)

    @override
    def command_output(self, line: str) -> None:
        self._say(f"  {line}", level=2)

    @override
    def command_finished(self, argv: Sequence[str], *, seconds: float) -> None:
        self._say(f"{argv[0]} finished in {seconds:.1f} s", level=1)

    @override
    def artifact_reused(self, name: str, *, path: Path) -> None:
        self._say(f"{name}: reused {path}")

    @override
    def artifact_built(self, name: str, *, path: Path) -> None:
        self._say(f"{name}: built {path}")

    @override
    def file_written(self, verb: str, path: Path) -> None:
        self._say(f"{verb:>10}  {path}", level=1)

    @override
    def model_state(self, model: str, state: str, *, seconds: float) -> None:
        self._say(f"  {model}: {state} ({seconds:.1f} s)")
