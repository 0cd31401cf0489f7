"""The measured figures: ``figures.json`` and the table in the pair's README."""

import json
from pathlib import Path
from typing import Any

import torch

from tiny_pair.evaluation import DRAFT_LENGTHS, measure
from tiny_pair.models import load_model

MODELS = ("target", "draft", "mismatched-draft")
TABLE_BEGIN = "<!-- figures: written by scripts/make_tiny_pair -->"
TABLE_END = "<!-- end of figures -->"


def measure_all(folder: Path) -> dict[str, Any]:
    """Return sizes of the models in ``folder`` and the pair's figures in both precisions."""
    return {
        "models": {name: _sizes(folder / name) for name in MODELS},
        "float32": measure(folder, torch.float32),
        "bfloat16": measure(folder, torch.bfloat16),
    }


def _sizes(folder: Path) -> dict[str, int]:
    model = load_model(folder, torch.bfloat16)
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "weight_bytes": (folder / "model.safetensors").stat().st_size,
    }


def figures_table(figures: dict[str, Any]) -> str:
    """Return ``figures`` as the Markdown that stands in the README."""
    lines = ["| Model | Parameters | Weights on disk |", "|---|---:|---:|"]
    for name, sizes in figures["models"].items():
        lines.append(f"| {name} | {sizes['parameters']:,} | {sizes['weight_bytes']:,} bytes |")
    exact, rough = figures["float32"], figures["bfloat16"]
    counts = f"{exact['new_tokens']} in float32, {rough['new_tokens']} in bfloat16"
    columns = (
        "Draft length",
        "Draft model: acceptance",
        "tokens per step",
        "acceptance, bfloat16",
        "Prompt lookup: acceptance",
        "tokens per step",
    )
    lines += [
        "",
        f"{exact['prompts']} held-out prompts, greedy decoding. New tokens: {counts}.",
        "",
        f"| {' | '.join(columns)} |",
        "|---:" * len(columns) + "|",
    ]
    for number in map(str, DRAFT_LENGTHS):
        model, lookup = exact["draft_model"][number], exact["prompt_lookup"][number]
        cells = (
            f"{model['acceptance_rate']:.3f}",
            f"{model['tokens_per_step']:.2f}",
            f"{rough['draft_model'][number]['acceptance_rate']:.3f}",
            f"{lookup['acceptance_rate']:.3f}",
            f"{lookup['tokens_per_step']:.2f}",
        )
        lines.append(f"| {number} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_figures(folder: Path, figures: dict[str, Any]) -> None:
    """Write ``figures.json``, and the table into the README if the folder has one."""
    text = json.dumps(figures, indent=2) + "\n"
    (folder / "figures.json").write_text(text, encoding="utf-8")
    readme = folder / "README.md"
    if readme.exists():
        page = readme.read_text(encoding="utf-8")
        readme.write_text(with_table(page, figures_table(figures)), encoding="utf-8")


def read_figures(folder: Path) -> dict[str, Any]:
    """Return the figures that were written last."""
    text = (folder / "figures.json").read_text(encoding="utf-8")
    figures: dict[str, Any] = json.loads(text)
    return figures


def with_table(page: str, table: str) -> str:
    """Return ``page`` with ``table`` between its two marks, which it must have."""
    before, begin, rest = page.partition(TABLE_BEGIN)
    _, end, after = rest.partition(TABLE_END)
    if not begin or not end:
        raise ValueError("the README lacks the marks between which the figures stand")
    return f"{before}{begin}\n{table}\n{end}{after}"
