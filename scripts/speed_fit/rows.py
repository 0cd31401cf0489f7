"""The measured rows as deployments."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from checkpoint_files import FACTS, config_of
from environment import ROOT

from specdeploy.core.checkpoint import CheckpointContents
from specdeploy.core.describe import describe_checkpoint
from specdeploy.core.models import ModelSpec
from specdeploy.core.speed.measured import Measured
from specdeploy.core.speed.rows import MeasuredRow, deployments, empty_cells_out

DATA: Final = ROOT / "scripts" / "fit_data"
LARGEST_TP: Final = 8
# Hub id of the rows -> begin of a recorded configuration's name.
_CONFIGS: Final = {
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen/Qwen3-235B-A22B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
}
# InferenceMAX draws every length between 0.8 and 1 times the one that it states.
_DRAWN: Final = frozenset({("1024", "1024"), ("1024", "8192"), ("8192", "1024")})
_MEAN_DRAWN: Final = 0.9
# The rows' name for a checkpoint that is stored in 4 bit already.
_STORED: Final = frozenset({"openai/gpt-oss-120b"})

Key = tuple[str, str, str, int]
Deployments = Mapping[Key, Measured]


@cache
def model_of(path: str) -> ModelSpec:
    """Return the recorded model that a row names."""
    name = _CONFIGS.get(path, path)
    facts = next(facts for facts in FACTS if facts["name"].startswith(name))
    return describe_checkpoint(CheckpointContents(name=name, config=config_of(facts)))


def read_rows() -> tuple[list[MeasuredRow], Counter[str]]:
    """Return the rows that the model covers, and how many it does not cover for which reason."""
    left_out: Counter[str] = Counter()
    rows = []
    with (DATA / "measured_serving.csv").open(encoding="utf-8", newline="") as file:
        for cells in csv.DictReader(file):
            row = _row(cells)
            reason = row.outside or (f"tp above {LARGEST_TP}" if row.tp_size > LARGEST_TP else None)
            if reason:
                left_out[reason] += 1
            else:
                rows.append(row)
    return rows, left_out


def read_deployments(rows: Sequence[MeasuredRow]) -> Deployments:
    """Return the points of ``rows`` by deployment."""
    return deployments(rows, {row.model_path: model_of(row.model_path) for row in rows})


def split_by_kind(groups: Deployments) -> tuple[Deployments, Deployments]:
    """Return the deployments of dense models, and those of mixtures of experts."""
    routed = {key: bool(group.serving.target.work.expert_bytes) for key, group in groups.items()}
    return (
        {key: group for key, group in groups.items() if not routed[key]},
        {key: group for key, group in groups.items() if routed[key]},
    )


def published_records() -> list[dict[str, object]]:
    """Return the records of published_numbers.json."""
    text = (DATA / "published_numbers.json").read_text(encoding="utf-8")
    records: list[dict[str, object]] = json.loads(text)["records"]
    return records


def _row(cells: Mapping[str, str]) -> MeasuredRow:
    known: dict[str, object] = dict(empty_cells_out(cells))
    if (cells["isl"], cells["osl"]) in _DRAWN:
        known |= {name: round(_MEAN_DRAWN * int(cells[name])) for name in ("isl", "osl")}
    if cells["model_path"] in _STORED:
        known["precision"] = "auto"
    return MeasuredRow.model_validate(known)
