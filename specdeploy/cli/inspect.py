"""``specdeploy inspect``: a checkpoint's parameters, weight bytes and KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from specdeploy import wiring
from specdeploy.cli import present
from specdeploy.cli.options import json_option, verbosity_options
from specdeploy.core.inspection import Inspection
from specdeploy.core.kv_cache import KV_BITS
from specdeploy.core.models import DraftHeadSpec, VocabularySpec
from specdeploy.core.precision import AUTO
from specdeploy.units import format_bytes, format_count
from specdeploy.workflows.inspect import InspectRequest, inspect

MOST_GPUS: Final = 1024


@click.command("inspect")
@click.argument("path")
@click.option(
    "--tp",
    type=click.IntRange(1, MOST_GPUS),
    default=1,
    show_default=True,
    help="GPUs that share the model.",
)
@click.option(
    "--kv-dtype",
    type=click.Choice([AUTO, *KV_BITS], case_sensitive=False),
    default=AUTO,
    show_default=True,
    help="Type of the KV cache; auto is 16 bit unless the checkpoint declares one.",
)
@json_option
@verbosity_options
def command(path: str, *, tp: int, kv_dtype: str, as_json: bool, verbose: int, quiet: bool) -> None:
    """Read a checkpoint: parameters, weights, KV cache, vocabulary.

    PATH is a Hugging Face directory or a Hub id. A directory that holds config.json alone
    is enough. Only JSON files and the headers of safetensors files are read; nothing in the
    directory is run or written. KV bytes are per token and GPU.

    \b
    Example:
      specdeploy inspect examples/tiny-pair/target
      specdeploy inspect meta-llama/Llama-3.1-70B --tp 4 --kv-dtype fp8 --json
    """
    request = InspectRequest(reference=path, tp=tp, kv_dtype=kv_dtype)
    result = inspect(request, checkpoints=wiring.checkpoint_reader(), hub=wiring.hub_resolver())
    if as_json:
        present.print_json(result)
        return
    reporter = present.TerminalReporter(verbose=verbose, quiet=quiet)
    for note in result.notes:
        reporter.note(note)
    if not quiet:
        _print_table(result)


def _print_table(result: Inspection) -> None:
    # rich costs as much as click to import, and only tables need it.
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=Text(result.name), show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for row in _rows(result):
        # Text: a checkpoint's own words are no markup and move no cursor.
        table.add_row(*map(Text, row))
    present.console().print(table)


def _rows(result: Inspection) -> Iterator[tuple[str, str]]:
    yield "architecture", f"{result.architecture} ({result.model_type or 'no model_type'})"
    yield from _sizes(result)
    yield "attention", _attention(result)
    yield from _cache(result)
    yield "context", f"{format_count(result.context_length)} tokens"
    if result.vocabulary is not None:
        yield "vocabulary", _vocabulary(result.vocabulary)
    ids = result.special_ids
    yield (
        "special ids",
        f"bos {ids.bos}, eos {ids.eos or None}, pad {ids.pad}"
        + (f", generation eos {ids.generation_eos}" if ids.generation_eos else ""),
    )
    if result.head is not None:
        yield "draft head", _head(result.head)


def _sizes(result: Inspection) -> Iterator[tuple[str, str]]:
    yield "parameters", format_count(result.parameters)
    if result.active_parameters != result.parameters:
        yield "  active", format_count(result.active_parameters)
    if result.mtp_parameters:
        yield "  MTP, beside them", format_count(result.mtp_parameters)
    yield "weights as served", _bytes(result.weight_bytes)
    yield "weights stored", _bytes(result.weight_bytes_stored)
    quantization = result.quantization
    if quantization is None:
        yield "dtype", result.dtype
    else:
        bits = f", {quantization.bits} bits" if quantization.bits else ""
        group = f", groups of {quantization.group_size}" if quantization.group_size else ""
        yield "quantization", f"{quantization.method}{bits}{group}, rest {result.dtype}"


def _cache(result: Inspection) -> Iterator[tuple[str, str]]:
    gpus = f" on each of {result.tp} GPUs" if result.tp > 1 else ""
    yield (
        "KV bytes per token",
        f"{format_count(result.kv_bytes_per_token)} in {result.kv_dtype}{gpus}",
    )
    if result.kv_bytes_per_token_full != result.kv_bytes_per_token:
        yield "  beyond the window", format_count(result.kv_bytes_per_token_full)
    if result.state_bytes_per_sequence:
        yield "  fixed per sequence", format_bytes(result.state_bytes_per_sequence)


def _attention(result: Inspection) -> str:
    return (
        f"{result.layers} layers, {result.attention_heads} heads, {result.kv_heads} KV heads, "
        f"head_dim {result.head_dim}"
    )


def _vocabulary(sizes: VocabularySpec) -> str:
    rows = f"{format_count(sizes.config_rows)} rows"
    if sizes.tokenizer_size is None:
        return f"{rows}; no tokenizer file to count"
    return (
        f"{rows}; tokenizer {format_count(sizes.tokenizer_size)} = {sizes.tokenizer_base} + "
        f"{sizes.tokenizer_added} added, highest id {sizes.highest_id}"
    )


def _head(head: DraftHeadSpec) -> str:
    parts: list[str] = [head.kind]
    if head.draft_vocab_size is not None:
        parts.append(f"{format_count(head.draft_vocab_size)} draft tokens")
    if head.target_hidden_size is not None:
        parts.append(f"for a target of hidden size {head.target_hidden_size}")
    return ", ".join(parts)


def _bytes(count: int | None) -> str:
    if count is None:
        return "not known"
    return f"{format_bytes(count)} ({format_count(count)} bytes)"
