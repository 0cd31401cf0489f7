"""Take the shipped pair through every command, then measure both arms."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from demonstration.arms import DRAFT_LENGTHS, Fleet, Pair, candidates, draft_lengths
from specdeploy.cli.present import TerminalReporter
from specdeploy.core.comparison import ArmMetrics, Comparison, ComparisonReport, Settings
from specdeploy.core.repository import Shape
from specdeploy.errors import SpecdeployError
from specdeploy.events import Reporter
from specdeploy.workflows.compare import (
    PromptPlan,
    choose_settings,
    compare_arms,
    describe,
    plan_prompts,
)

ROOT: Final = Path(__file__).resolve().parent.parent.parent
TINY_PAIR: Final = ROOT / "examples" / "tiny-pair"
SHAPES: Final[tuple[Shape, ...]] = ("llmapi", "engine")
PROMPT_CHARACTERS: Final = 600
MAX_TOKENS: Final = 96
CHOOSING_ROUNDS: Final = 2
REPORTED_ROUNDS: Final = 9
PROMPTS_PER_ROUND: Final = 3
PIPED_WIDTH: Final = 100
QUESTION: Final = "def read_lines(path):\n    "


def main(words: Sequence[str] | None = None) -> int:
    """Run the demo and return the status to leave with."""
    arguments = _parser().parse_args(words)
    reporter = TerminalReporter()
    # An exception, so that servers are stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory(prefix="specdeploy-demo-") as name:
            folder = Path(name)
            tour(folder)
            pair = Pair(TINY_PAIR / "target", TINY_PAIR / "draft", folder)
            report = compare(pair, _prompts(), reporter)
    except SpecdeployError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except subprocess.CalledProcessError as error:
        return error.returncode
    if arguments.json:
        print(report.model_dump_json(indent=2))
    else:
        print_report(report)
    return 0


def tour(folder: Path) -> None:
    """Run the commands that a user would, and show them.

    Raises:
        CalledProcessError: a command ended with another status than it should.
    """
    config = str(folder / "specdeploy.yaml")
    target, draft = str(TINY_PAIR / "target"), str(TINY_PAIR / "draft")
    stranger = str(TINY_PAIR / "mismatched-draft")
    _command(["check", "--target", target, "--draft", stranger], expected=3)
    _command(["init", "--target", target, "--draft", draft, "--output", config])
    _command(["check", config])
    _command(["build", config])
    _command(["verify", str(folder / ".specdeploy")])
    _command(["serve", config, "--detach"])
    try:
        workspace = str(folder / ".specdeploy")
        _command(["ask", QUESTION, "--workspace", workspace, "--max-tokens", "80"])
    finally:
        _command(["stop", workspace])


def compare(pair: Pair, prompts: PromptPlan, reporter: Reporter) -> ComparisonReport:
    """Return both shapes' comparisons, measured on servers of their own."""
    comparisons = [compare_shape(shape, pair, prompts, reporter) for shape in SHAPES]
    return ComparisonReport(
        target=pair.target.name,
        draft=pair.draft.name,
        comparisons=comparisons,
        machine={
            "processor": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
        },
    )


def compare_shape(shape: Shape, pair: Pair, prompts: PromptPlan, reporter: Reporter) -> Comparison:
    """Choose each arm's settings, then measure the two chosen servers."""
    classic, speculative = candidates(shape)
    first, second = (
        PromptPlan([part], prompts.reporting, prompts.max_tokens) for part in prompts.choosing
    )
    with Fleet(pair, Reporter()) as fleet:
        reporter.note(f"starting {len(classic) + len(speculative)} servers, {shape} shape")
        fleet.start([*classic, *speculative])
        best = [
            choose_settings(arm, ask=fleet.ask, prompts=first, reporter=reporter)
            for arm in (classic, speculative)
        ]
        fleet.keep(best)
        tuned = choose_settings(
            draft_lengths(best[1]), ask=fleet.ask, prompts=second, reporter=reporter
        )
        return compare_arms(
            best[0],
            tuned,
            ask=fleet.ask,
            prompts=prompts,
            candidates=len(classic) + len(speculative) + len(DRAFT_LENGTHS),
        )


def print_report(report: ComparisonReport) -> None:
    """Print the table, and under it how it was measured."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    table = Table(title="Classic against speculative generation, one user")
    for heading in ("arm", "tokens/s", "TTFT ms", "ITL ms", "acceptance rate", "tokens/step"):
        table.add_column(heading, justify="left" if heading == "arm" else "right")
    for one in report.comparisons:
        table.add_row(*_row(one.classic, one.classic_metrics))
        table.add_row(*_row(one.speculative, one.speculative_metrics), end_section=True)
    console.print(table)
    for one in report.comparisons:
        total = one.rounds * one.prompts_per_round
        console.print(
            f"{one.classic.shape} shape: speculative / classic = {one.speedup:.2f} "
            f"(median of {one.rounds} rounds, {one.speedup_low:.2f} to {one.speedup_high:.2f}); "
            f"{one.prompts_per_round} prompts a round in turn, up to {one.max_tokens} tokens; "
            f"{one.identical_answers} of {total} answers identical"
        )
    console.print(
        "Settings were chosen on other prompts than those reported. The classic arm is a server "
        "with no draft."
    )


def _row(settings: Settings, metrics: ArmMetrics) -> list[str]:
    return [
        describe(settings),
        f"{metrics.tokens_per_s:.0f}",
        f"{metrics.ttft_ms:.1f}",
        "-" if metrics.itl_ms is None else f"{metrics.itl_ms:.2f}",
        "-" if metrics.acceptance_rate is None else f"{metrics.acceptance_rate:.2f}",
        "-" if metrics.tokens_per_step is None else f"{metrics.tokens_per_step:.2f}",
    ]


def _prompts() -> PromptPlan:
    needed = (CHOOSING_ROUNDS + REPORTED_ROUNDS) * PROMPTS_PER_ROUND
    texts = [path.read_text() for path in sorted((TINY_PAIR / "held_out").iterdir())]
    pieces = [
        text[start : start + PROMPT_CHARACTERS]
        for start in range(0, len(max(texts, key=len)), PROMPT_CHARACTERS)
        for text in texts
        if len(text) >= start + PROMPT_CHARACTERS
    ]
    rounds = (CHOOSING_ROUNDS, REPORTED_ROUNDS)
    return plan_prompts(pieces[:needed], rounds=rounds, max_tokens=MAX_TOKENS)


def _command(words: list[str], *, expected: int = 0) -> None:
    """Run a command of ours; what it prints goes to stderr, the result is ours alone."""
    print(f"\n$ specdeploy {shlex.join(words)}", file=sys.stderr, flush=True)
    argv = [sys.executable, "-m", "specdeploy", *words]
    status = subprocess.run(argv, stdout=sys.stderr, check=False).returncode
    if status != expected:
        print(f"error: exit status {status}, not {expected}", file=sys.stderr)
        raise subprocess.CalledProcessError(status or 1, argv)
    if expected:
        print(f"(exit status {status}, as it should)", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
