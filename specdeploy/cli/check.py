"""``specdeploy check``: do these two belong together?"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from specdeploy import wiring
from specdeploy.cli import present, settings
from specdeploy.cli.options import (
    FLAGS_KEY,
    config_argument,
    json_option,
    override_options,
    verbosity_options,
)
from specdeploy.core.compat import CHECKED_METHODS, HEAD_METHODS, CompatReport, MemberFacts
from specdeploy.core.findings import Finding
from specdeploy.workflows.check import CheckRequest, check

SEVERITIES: Final = ("error", "warning", "info")
TOKENS: Final = {
    "equal": "token ids and encodings agree",
    "differ": "tokens differ",
    "not-compared": "tokens were not compared",
    "not-needed": "no second tokenizer is needed",
}


@click.command("check")
@config_argument
@override_options(
    "--target",
    "--draft",
    "--runtime",
    "--draft-length",
    "--max-seq-len",
    "--precision",
    "--tp",
    "--gpu",
)
@click.option(
    "--method",
    type=click.Choice(CHECKED_METHODS, case_sensitive=False),
    help="How tokens are drafted; the file's when it is left out.",
)
@click.option(
    "--use-draft-logits/--no-use-draft-logits",
    default=False,
    show_default=True,
    help="Require logits of equal width, for acceptance by probability.",
)
@click.option("--strict", is_flag=True, help="Exit 3 on warnings too.")
@json_option
@verbosity_options
@click.pass_context
def command(
    context: click.Context,
    config: Path | None,
    *,
    method: str | None,
    use_draft_logits: bool,
    strict: bool,
    as_json: bool,
    verbose: int,
    quiet: bool,
) -> None:
    """Tell whether a draft and a target belong together.

    Compares tokens, special ids, chat templates, context lengths, tensor parallelism, draft
    heads, and what the runtime and the GPU can serve. Exits 0 when the pair is usable, and
    3 when it is not. The pair is read from CONFIG (./specdeploy.yaml) or from --target and
    --draft. Every code is explained in docs/findings.md.

    \b
    Example:
      specdeploy check pair.yaml
      specdeploy check --target Qwen2.5-72B --draft Qwen2.5-0.5B --tp 2 --gpu h100-sxm --json
    """
    head = method if method in HEAD_METHODS else None
    if method is not None:
        written = "none" if head else method
        context.meta.setdefault(FLAGS_KEY, []).append(("--method", "method", written))
    loaded = settings.load(config, present.TerminalReporter(verbose=verbose, quiet=quiet))
    request = CheckRequest(loaded, head_method=head, use_draft_logits=use_draft_logits)
    report = check(request, tools=wiring.check_tools())
    if as_json:
        present.print_json(report)
    elif not quiet:
        _print_report(report, strict=strict)
    report.raise_if_blocking(strict=strict)


def _print_report(report: CompatReport, *, strict: bool) -> None:
    click.echo(_verdict(report, strict=strict))
    click.echo(f"  target  {_summary(report.target)}")
    if report.draft is not None:
        click.echo(f"  draft   {_summary(report.draft)}")
    for severity in SEVERITIES:
        found = [finding for finding in report.findings if finding.severity == severity]
        if found:
            click.echo(f"\n{severity}:")
        for finding in found:
            _print_finding(finding)


def _verdict(report: CompatReport, *, strict: bool) -> str:
    counts = [
        f"{count} {severity}{'s' if count > 1 and severity != 'info' else ''}"
        for severity in SEVERITIES
        if (count := report.count(severity))
    ]
    refused = strict and report.verdict == "compatible" and report.count("warning")
    verdict = f"{report.verdict}, refused by --strict" if refused else report.verdict
    return f"{verdict}: {', '.join([TOKENS[report.tokens], *counts])}"


def _summary(facts: MemberFacts) -> str:
    tokenizer = facts.tokenizer
    tokens = (
        "no tokenizer"
        if tokenizer is None
        else (f"{tokenizer.size} tokens ({tokenizer.base_size} + {tokenizer.added_size} added)")
    )
    model = facts.model
    return (
        f"{model.name}: {model.architecture}, {model.parameters:,} parameters, "
        f"{model.vocab_size} rows, {tokens}, {model.context_length} positions, tp {facts.tp}"
    )


def _print_finding(finding: Finding) -> None:
    click.echo(f"  {finding.code}: {finding.message}")
    if finding.hint:
        click.echo(f"    hint: {finding.hint}")
