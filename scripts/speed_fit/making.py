"""What scripts/fit_constants writes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np
from environment import ROOT

from specdeploy.core.speed import TABLE
from specdeploy.core.speed.intervals import Factors, factors_of
from speed_fit.fits import DENSE, DRAFTING, EXPERTS, fit_dense, fit_drafting, fit_experts
from speed_fit.folds import Fit, errors_by_fold, five_folds
from speed_fit.published import read_points
from speed_fit.rows import Deployments, read_deployments, read_rows, split_by_kind
from speed_fit.spread import LEVEL, even_factors, share_to_ask_for, unseen_speedups

TARGET: Final = ROOT / "specdeploy" / "core" / "speed" / "fitted.py"
DOCUMENT: Final = ROOT / "docs" / "speed.md"
_TABLE_BEGIN: Final = "<!-- constants: written by scripts/fit_constants -->"
_TABLE_END: Final = "<!-- end of constants -->"
# Constants are written with this many digits, and compared to this share.
DIGITS: Final = 4
TOLERANCE: Final = 0.01

Spread = dict[str, dict[str, Factors]]


def fit_all() -> tuple[dict[str, float], Spread]:
    """Return the fitted constants, and the intervals' factors by kind of model and number."""
    dense, experts = split_by_kind(read_deployments(read_rows()[0]))
    points = read_points()
    served = fit_dense(list(dense.values()))
    routed = fit_experts(list(experts.values()), served)
    drafting = fit_drafting(points, routed)
    values = {name: drafting.values()[name] for name in (*DENSE, *EXPERTS, *DRAFTING)}
    speedup = even_factors(unseen_speedups(points, routed))
    spread = {
        "dense": _spread(dense, fit_dense, speedup),
        "experts": _spread(experts, partial(fit_experts, dense=served), speedup),
    }
    return values, spread


def differences(
    made: tuple[Mapping[str, float], Spread], kept: tuple[Mapping[str, float], Spread]
) -> list[str]:
    """Return one line for each number of ``made`` that is not, within tolerance, in ``kept``."""
    old, new = _flat(*kept), _flat(*made)
    return [
        f"{name}: {old.get(name)} is kept, {new.get(name)} is fitted"
        for name in sorted(old.keys() | new.keys())
        if not _close(old.get(name), new.get(name))
    ]


def as_python(values: Mapping[str, float], spread: Spread) -> str:
    """Return the text of fitted.py."""
    constants = [f'    "{name}": {_short(value)},' for name, value in values.items()]
    factors = [
        f'    "{kind}": {{'
        + ", ".join(f'"{name}": ({_short(a)}, {_short(b)})' for name, (a, b) in each.items())
        + "},"
        for kind, each in spread.items()
    ]
    return "\n".join(
        [
            '"""Written by scripts/fit_constants; not by hand."""',
            "",
            "from __future__ import annotations",
            "",
            "from typing import Final",
            "",
            "FITTED: Final[dict[str, float]] = {",
            *constants,
            "}",
            "# What a prediction is multiplied with: LEVEL of unseen measurements lie between.",
            f"LEVEL: Final = {LEVEL}",
            "SPREAD: Final[dict[str, dict[str, tuple[float, float]]]] = {",
            *factors,
            "}",
            "",
        ]
    )


def constants_table(values: Mapping[str, float]) -> str:
    """Return every constant as Markdown, the fitted ones with ``values``."""
    lines = [
        "| constant | meaning | value | unit | bounds (prior) | source |",
        "|---|---|---:|---|---|---|",
    ]
    for constant in TABLE:
        value = float(_short(values.get(constant.name, constant.prior)))
        bounds = f"{constant.low:g} to {constant.high:g} ({constant.prior:g})"
        lines.append(
            f"| `{constant.name}` | {constant.meaning} | {value:.4g} | {constant.unit} "
            f"| {bounds if constant.source == 'fitted' else ''} "
            f"| {constant.source}: {constant.origin} |"
        )
    return "\n".join(lines)


def with_table(document: str, table: str) -> str:
    """Return the text of docs/speed.md with ``table`` in its place."""
    head, begin, rest = document.partition(_TABLE_BEGIN)
    _, end, tail = rest.partition(_TABLE_END)
    return f"{head}{begin}\n{table}\n{end}{tail}"


def _spread(groups: Deployments, fit: Fit, speedup: Factors) -> dict[str, Factors]:
    folds = errors_by_fold(groups, five_folds(groups), fit)
    found = {"speedup": speedup}
    for number in ("ttft", "tpot"):
        errors = [getattr(fold, number) for fold in folds]
        found[number] = factors_of(np.concatenate(errors), share_to_ask_for(errors))
    return found


def _flat(values: Mapping[str, float], spread: Spread) -> dict[str, float]:
    ends = {
        f"{kind} {name} {end}": factors[index]
        for kind, each in spread.items()
        for name, factors in each.items()
        for index, end in enumerate(("low", "high"))
    }
    return {**values, **ends}


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    return abs(one - other) <= TOLERANCE * max(abs(one), abs(other), 1e-7)


def _short(value: float) -> str:
    return f"{float(f'{value:.{DIGITS}g}')!r}"
