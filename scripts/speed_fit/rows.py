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
# Its servers of Llama 70B let prompts of 1024/1024 wait for company below 8 GPUs.
_BATCH_WAIT_ITERS: Final = 20
_WAITED_FOR: Final = ("meta-llama/Llama-3.1-70B", "1024", "1024")
_NOT_WAITED_FOR_TP: Final = 8
# The rows' name for a checkpoint that is stored in 4 bit already.
_STORED: Final = frozenset({"openai/gpt-oss-120b"})

# Two rows at one load that differ by more were not served in the same way.
_FASTER: Final = 1.5

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
    with (DATA / "measured_serving.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    speculating = _speculating(table)
    left_out: Counter[str] = Counter()
    rows = []
    for cells in table:
        row = _row(cells)
        reason = row.outside or (f"tp above {LARGEST_TP}" if row.tp_size > LARGEST_TP else None)
        if reason is None and _release(cells) in speculating:
            reason = "multi-token prediction, judged by speed"
        if reason:
            left_out[reason] += 1
        else:
            rows.append(row)
    return rows, left_out


def _speculating(table: Sequence[Mapping[str, str]]) -> set[tuple[str, ...]]:
    """Return the releases whose rows seem to be measured with multi-token prediction.

    The file does not tell. Of a model that has such modules, all rows of one GPU, precision and
    release are taken to be so if one of them takes less than two thirds of the time per token
    that another release takes at the same load.
    """
    at_load: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for cells in table:
        if model_of(cells["model_path"]).mtp_parameters:
            names = ("tp_size", "attention_dp_size", "isl", "osl", "batch_size")
            load = (*_release(cells)[:-1], *(cells[name] for name in names))
            at_load.setdefault(load, []).append(cells)
    return {
        _release(cells)
        for rows in at_load.values()
        for cells in rows
        if _FASTER * float(cells["silicon_tpot_ms"])
        < max(float(other["silicon_tpot_ms"]) for other in rows)
    }


def _release(cells: Mapping[str, str]) -> tuple[str, ...]:
    """Return model, GPU, precision and release of a row; DeepSeek-V3 and R1 have one shape."""
    name = cells["model_path"]
    shape = "deepseek" if model_of(name).mtp_parameters else name
    return (shape, cells["system"], cells["precision"], cells["backend_version"])


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
        known |= {"equal_lengths": False, "batch_wait_iters": _batch_wait_iters(cells)}
    if cells["model_path"] in _STORED:
        known["precision"] = "auto"
    return MeasuredRow.model_validate(known)


def _batch_wait_iters(cells: Mapping[str, str]) -> int:
    named = (cells["model_path"], cells["isl"], cells["osl"])
    waits = named == _WAITED_FOR and int(cells["tp_size"]) < _NOT_WAITED_FOR_TP
    return _BATCH_WAIT_ITERS if waits else 0
