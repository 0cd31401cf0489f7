"""The two sources of step times on rows that were in no fit."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from checkpoint_files import FACTS, config_of

from specdeploy.adapters.silicon import SiliconTables
from specdeploy.core.hardware import find_gpu
from specdeploy.core.models import QuantizationSpec
from specdeploy.core.served import ServedModel
from specdeploy.core.speed import Constants
from specdeploy.core.speed.fitting import FitOptions, fit
from specdeploy.core.speed.load import Array
from specdeploy.core.speed.measured import Measured, errors_of, mean_absolute
from specdeploy.core.speed.measured_table import MeasuredTable, NotMeasured
from specdeploy.core.speed.rows import MeasuredRow
from speed_fit.fits import FIRST_TOKEN_WEIGHT, PRIORS, PULL, fit_dense, fit_experts
from speed_fit.rows import Deployments, Key, read_deployments, read_rows

FOLDS: Final = 5
HOST: Final = (
    *("step_s", "request_s", "prompt_s", "first_token_s"),
    *("interference", "queue_base", "queue_slope", "backlog"),
)
# The same checkpoint under other names.
_TWINS: Final = {
    "deepseek-ai/DeepSeek-R1": "deepseek-ai/DeepSeek-V3",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-V3",
}
# Stored in blocks of FP8, which its recorded configuration does not say.
_BLOCKS: Final = {"Qwen/Qwen3-235B-A22B-FP8"}
KINDS: Final = ("dense", "experts", "experts, latent attention")


@dataclass(frozen=True, eq=False)
class Case:
    """One deployment with both sources."""

    key: Key
    fold: int
    roofline: Measured
    kernels: Measured


def print_comparison() -> None:
    """Print the errors of every deployment and kind of model."""
    rows = list(_distinct(read_rows()[0]))
    cases = tuple(_cases(read_deployments(rows)))
    print("TPOT, mean absolute error on unseen deployments:")
    print(f"{'':60}roofline kernels refitted chosen")
    _report(cases)


def _distinct(rows: Sequence[MeasuredRow]) -> Iterator[MeasuredRow]:
    """Yield each measurement once; some are listed for two models or dates."""
    seen = set()
    for row in rows:
        measured = (_load(row), row.silicon_ttft_ms, row.silicon_tpot_ms)
        if measured not in seen:
            seen.add(measured)
            yield row


def _load(row: MeasuredRow) -> tuple[object, ...]:
    model = _TWINS.get(row.model_path, row.model_path)
    lengths = (row.isl, row.osl, row.batch_size)
    return (model, row.system, row.precision, row.tp_size, *lengths)


def _cases(groups: Deployments) -> Iterator[Case]:
    """Yield a case per deployment; deployments of one checkpoint's twins share a fold."""
    names = sorted({_twin(key) for key in groups})
    order = np.random.default_rng(0).permutation(len(names))
    folds = {names[place]: int(turn % FOLDS) for turn, place in enumerate(order)}
    for key, group in groups.items():
        kernels = _with_kernels(key, group)
        if isinstance(kernels, NotMeasured):
            print(f"left out: {_told(key)}: {kernels.reason}", file=sys.stderr)
        else:
            yield Case(key, folds[_twin(key)], group, kernels)


def _twin(key: Key) -> Key:
    return (_TWINS.get(key[0], key[0]), *key[1:])


def _with_kernels(key: Key, group: Measured) -> Measured | NotMeasured:
    serving = group.serving
    found = _table(key, serving.pair.target)
    if isinstance(found, NotMeasured):
        return found
    timed = replace(serving.pair.target, measured=found)
    pair, target = replace(serving.pair, target=timed), replace(serving.target, model=timed)
    return replace(group, serving=replace(serving, pair=pair, target=target))


def _table(key: Key, model: ServedModel) -> MeasuredTable | NotMeasured:
    config = _config(model.spec.name)
    if key[0] in _BLOCKS:
        stored = QuantizationSpec(method="fp8", bits=8)
        model = replace(model, spec=model.spec.evolve(quantization=stored))
        config |= {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        return SiliconTables().table(model, find_gpu(key[1]), checkpoint=Path(folder))


def _config(name: str) -> dict[str, object]:
    return config_of(next(facts for facts in FACTS if facts["name"].startswith(name)))


def _report(cases: tuple[Case, ...]) -> None:
    errors = {case: _unseen(case, cases) for case in cases}
    for case in cases:
        errors[case].append(errors[case][_better(case, errors)])
    for kind in KINDS:
        chosen = [case for case in cases if _kind(case) == kind]
        for case in chosen:
            print(f"  {_told(case.key):<48}{_columns([errors[case]])}")
        print(f"{kind:<50}{_columns([errors[case] for case in chosen])}")
    print(f"{'all':<50}{_columns(list(errors.values()))}")


def _better(case: Case, errors: Mapping[Case, Sequence[Array]]) -> int:
    """Return 0 for the roofline or 1 for kernels: what was nearer in the other folds."""
    others = [e for o, e in errors.items() if o.fold != case.fold and _kind(o) == _kind(case)]
    means = [mean_absolute(np.concatenate([each[way] for each in others])) for way in (0, 1)]
    return int(means[1] < means[0])


def _kind(case: Case) -> str:
    work = case.roofline.serving.target.work
    return KINDS[0] if not work.expert_bytes else KINDS[2] if work.latent else KINDS[1]


def _is_routed(case: Case) -> bool:
    return _kind(case) != KINDS[0]


def _told(key: Key) -> str:
    model, system, precision, tp = key
    return f"{model.partition('/')[2]} {system} {precision} tp{tp}"


def _columns(errors: Sequence[Sequence[Array]]) -> str:
    joined = [np.concatenate(column) for column in zip(*errors, strict=True)]
    means = "".join(f"{mean_absolute(column):8.1%}" for column in joined)
    return f"{len(joined[0]):5d} rows{means}"


def _unseen(case: Case, cases: tuple[Case, ...]) -> list[Array]:
    """Return the errors of TPOT: roofline, kernels, kernels with constants of their own."""
    roofline, host = _fitted(case.fold, cases, routed=_is_routed(case))
    return [
        errors_of([case.roofline], roofline).tpot,
        errors_of([case.kernels], roofline).tpot,
        errors_of([case.kernels], host).tpot,
    ]


@cache
def _fitted(fold: int, cases: tuple[Case, ...], *, routed: bool) -> tuple[Constants, Constants]:
    """Return the constants for the roofline and for kernels, from all folds but one."""
    seen = [case for case in cases if case.fold != fold]
    dense = fit_dense([case.roofline for case in seen if not _is_routed(case)])
    kernels = [case.kernels for case in seen if _is_routed(case) == routed]
    host = fit(kernels, PRIORS, FitOptions(HOST, FIRST_TOKEN_WEIGHT, PULL))
    if not routed:
        return dense, host
    return fit_experts([case.roofline for case in seen if _is_routed(case)], dense), host
