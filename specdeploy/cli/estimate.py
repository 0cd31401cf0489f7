"""``specdeploy estimate``: memory and speed of a deployment as it is described."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from specdeploy import wiring
from specdeploy.cli import present
from specdeploy.cli.options import json_option, memory_limit_option, verbosity_options
from specdeploy.core.estimate import Estimate
from specdeploy.core.kv_cache import KV_BITS
from specdeploy.core.memory_records import GpuLedger, MemoryComponent, MemoryPlan
from specdeploy.core.precision import AUTO
from specdeploy.core.speed import DEFAULT, Constants, Speed
from specdeploy.errors import ConfigError
from specdeploy.units import format_bytes
from specdeploy.workflows.estimate import CHOICES, Estimator, Query, check_query, require_fit

ROWS: Final = (
    ("TTFT ms", "ttft_ms"),
    ("TPOT ms", "tpot_ms"),
    ("tokens/s, all", "tokens_per_s"),
    ("tokens/s, each", "tokens_per_s_per_request"),
    ("step ms", "step_ms"),
    ("tokens per step", "tokens_per_step"),
)


@click.command("estimate")
@click.option("--target", metavar="PATH", help="The target's checkpoint or Hub id.")
@click.option("--draft", metavar="PATH", help="The draft's; without one, nothing is drafted.")
@click.option("--gpu", metavar="NAME", help="The GPU, such as h100-sxm or custom:MIB:SM.")
@click.option("--tp", type=int, help="Tensor parallelism; default: 1.")
@click.option("--draft-tp", type=int, metavar="INTEGER", help="Of the draft; default: --tp.")
@click.option("--precision", metavar="P", help="bf16, fp16, fp8, int8, int4-awq, w4a8, nvfp4, ...")
@click.option("--draft-precision", metavar="P", help="Of the draft; default: --precision.")
@click.option(
    "--kv-dtype",
    type=click.Choice([AUTO, *KV_BITS], case_sensitive=False),
    help="KV cache of both models.",
)
@click.option(
    "--method",
    type=click.Choice(CHOICES["method"], case_sensitive=False),
    help="How tokens are drafted; default: draft_target with a draft.",
)
@click.option(
    "--shape", type=click.Choice(CHOICES["shape"]), help="Two engines, or one process (llmapi)."
)
@click.option(
    "--source",
    type=click.Choice(CHOICES["source"]),
    help="Step times: computed, of timed kernels, or auto, those for experts if installed.",
)
@click.option("--batch", type=int, help="Requests in flight, steadily; default: 1.")
@click.option("--input-len", type=int, help="Prompt tokens; default: 1024.")
@click.option("--output-len", type=int, help="Answer tokens; default: 256.")
@click.option("--draft-length", type=int, metavar="K", help="Tokens proposed per step.")
@click.option(
    "--tokens-per-step", type=float, metavar="X", help="Emitted per step, bonus included."
)
@click.option(
    "--acceptance",
    metavar="A|FILE",
    help="Chance that the next draft token is accepted, an acceptance.json, or preset:NAME.",
)
@click.option("--max-num-tokens", type=int, help="Tokens of one pass; default: 8192.")
@memory_limit_option
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Constants of the speed model, fitted to your own measurements.",
)
@click.option(
    "--points",
    metavar="FILE|-",
    help="Answer each JSON line of a file, or of stdin, with one; its keys are the flags'.",
)
@json_option
@verbosity_options
def command(
    *,
    calibration: Path | None,
    points: str | None,
    as_json: bool,
    verbose: int,
    quiet: bool,
    **flags: object,
) -> None:
    """Predict memory and speed of one deployment, or of many.

    Says whether it fits, how many requests memory holds, and TTFT, TPOT and tokens per second
    with and without speculation, each with an interval and where it comes from. Nothing is
    measured. Exits 4 when one deployment does not fit.

    With --points, flags are defaults of every line. A line that cannot be answered gives
    {"error": ..., "line": n}; the others are answered, and the end is exit 2.

    \b
    Example:
      specdeploy estimate --target Llama-3.1-70B --gpu h100 --tp 4 --precision fp8 --batch 16
      specdeploy estimate --target T --draft D --gpu h200 --draft-length 4 --acceptance 0.7 --json
      specdeploy estimate --points points.jsonl > answers.jsonl
    """
    given = {key: _number(key, value) for key, value in flags.items() if value is not None}
    query = check_query(given, Query())
    estimator = wiring.estimator(Path.cwd(), _constants(calibration))
    if points is not None:
        _answer_lines(estimator, points, query)
        return
    found, plan = estimator.estimate(query)
    if as_json:
        present.print_json(found)
    elif not quiet:
        _print(found, ledgers=verbose > 0)
    require_fit(plan)


def _number(key: str, value: object) -> object:
    """Return ``--acceptance 0.7`` as the number that a JSON line would hold."""
    if key != "acceptance" or not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _constants(calibration: Path | None) -> Constants:
    if calibration is None:
        return DEFAULT
    return wiring.tuning_files().read_calibration(Path.cwd() / calibration).apply()


def _answer_lines(estimator: Estimator, points: str, default: Query) -> None:
    wrong = 0
    for answer in estimator.lines(_lines_of(points), default):
        wrong += "error" in answer
        click.echo(json.dumps(answer))
    if wrong:
        raise ConfigError(f"{wrong} lines could not be answered", hint="each says why, in place")


def _lines_of(points: str) -> Iterator[str]:
    """Yield the lines of a file or of stdin; bytes that are no UTF-8 become lone surrogates."""
    name = "standard input" if points == "-" else points
    if points == "-" and sys.stdin is None:
        raise ConfigError(f"cannot read {name}: it is closed")
    try:
        with click.open_file(points, encoding="utf-8-sig", errors="surrogateescape") as stream:
            yield from stream
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from error


def _print(found: Estimate, *, ledgers: bool) -> None:
    memory = found.memory
    state = "fits" if found.fits else "does not fit"
    click.echo(
        f"{state}: {found.max_resident} requests at once; {format_bytes(memory.fixed_bytes)} "
        f"beside the KV cache, {format_bytes(memory.request_bytes)} of it per request, "
        f"{format_bytes(max(memory.pool_bytes, 0))} for it"
    )
    if ledgers and memory.plan is not None:
        for line in _ledgers(memory.plan):
            click.echo(line)
    if found.baseline is not None or found.speculative is not None:
        click.echo(
            f"\n{'':<16} {'no draft':>12} {'interval':>19} {'drafting':>12} {'interval':>19}"
        )
        for title, name in ROWS:
            click.echo(
                f"{title:<16} {_cells(found, 'baseline', name)} "
                f"{_cells(found, 'speculative', name)}".rstrip()
            )
    if found.speedup is not None:
        gain = found.interval["speedup"]
        click.echo(
            f"\nspeedup at this load, of tokens per second per request: {found.speedup:.2f} "
            f"({gain.low:.2f} to {gain.high:.2f})"
        )
    if found.bound_by is not None:
        click.echo(f"most of a step: {found.bound_by}")
    for line in present.draft_costs(found.draft_costs):
        click.echo(line)
    for source in sorted(set(found.sources.values())):
        names = (name for name, given in found.sources.items() if given == source)
        click.echo(f"{source}: {', '.join(names)}")
    for line in found.assumptions:
        click.echo(f"assumed: {line}")


def _ledgers(plan: MemoryPlan) -> Iterator[str]:
    """Yield the memory of each GPU line by line; GPUs that hold the same are told once."""
    alike: dict[tuple[MemoryComponent, ...], list[GpuLedger]] = {}
    for ledger in plan.gpus:
        alike.setdefault(tuple(ledger.components), []).append(ledger)
    for same in alike.values():
        first = same[0]
        yield f"\nGPU {', '.join(str(ledger.index) for ledger in same)}"
        for part in first.components:
            yield f"  {part.name:<24} {format_bytes(part.bytes):>12}  {part.formula}"
        short = first.headroom_bytes < 0
        for title, size in (
            ("total", first.total_bytes),
            ("of the card", first.capacity_bytes),
            ("missing" if short else "headroom", abs(first.headroom_bytes)),
        ):
            yield f"  {title:<24} {format_bytes(size):>12}"
    for note in plan.notes:
        yield f"note: {note}"


def _cells(found: Estimate, way: str, name: str) -> str:
    speed: Speed | None = getattr(found, way)
    if speed is None:
        return f"{'-':>12} {'':>19}"
    interval = found.interval.get(f"{way}.{name}")
    ends = "" if interval is None else f"{interval.low:,.1f} to {interval.high:,.1f}"
    return f"{getattr(speed, name):>12,.2f} {ends:>19}"
