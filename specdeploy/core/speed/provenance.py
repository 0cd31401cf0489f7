"""Where the numbers of an estimate come from, and what they take for granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.speed.constants import BY_NAME, Source
from specdeploy.core.speed.drafting import is_tree
from specdeploy.core.speed.rates import rates_of
from specdeploy.core.speed.serving import Serving

# Compute capabilities that measured rows exist for: Hopper and Blackwell for data centres.
FITTED_SM: Final = frozenset({90, 100})
_MEASURED_NUMBERS: Final = (
    *("ttft_ms", "tpot_ms", "tokens_per_s", "tokens_per_s_per_request", "step_ms"),
)


def sources_of(serving: Serving, gpu: GpuSpec, *, drafting: bool) -> dict[str, Source]:
    """Return the source of every number: that of the weakest thing it rests on.

    ``assumed`` is weaker than ``fitted``, and that than ``calibrated`` and ``measured table``.
    What the caller gave is not judged here.
    """
    constants = serving.constants
    fitted: Source = "calibrated" if constants.calibrated else "fitted"
    if serving.target.model.measured is not None:
        fitted = "measured table"
    taken = _taken_as_given(serving, gpu)
    plain: Source = "assumed" if any(taken) else fitted
    weak = drafting and any(
        constants.source(name) == "assumed" for name in _assumed_constants(serving)
    )
    fast: Source = "assumed" if weak else plain
    # Drafting itself is fitted to published curves, whatever the target's numbers are.
    fast = "fitted" if drafting and fast != "assumed" else fast
    return {
        **{f"baseline.{name}": plain for name in _MEASURED_NUMBERS},
        **{f"speculative.{name}": fast for name in _MEASURED_NUMBERS},
        "speedup": fast,
    }


def assumptions_of(serving: Serving, gpu: GpuSpec, *, drafting: bool) -> list[str]:
    """Return what the estimate takes for granted, a sentence each."""
    told = list(_taken_as_given(serving, gpu))
    for name in _assumed_constants(serving) if drafting else ():
        constant = BY_NAME[name]
        if serving.constants.source(name) == "assumed":
            told.append(f"{constant.meaning}: {constant.value:g} {constant.unit} (assumed)")
    return told


def _taken_as_given(serving: Serving, gpu: GpuSpec) -> Iterator[str]:
    """Yield what the roofline assumes of the GPU; timed kernels need none of it."""
    if serving.target.model.measured is not None:
        return
    near = rates_of(gpu).assumed_from
    if near is not None:
        yield f"{gpu.name} has the rates of {near} (assumed)"
    if gpu.sm not in FITTED_SM:
        yield f"SM {gpu.sm} reaches the same share of its peaks as those that were measured"
    if serving.target.model.tp > 1 and not serving.target.rates.nvlink_gb_s:
        yield "the GPUs of one model are joined by PCIe, which was not measured"


def _assumed_constants(serving: Serving) -> Iterator[str]:
    """Yield the constants of speculation that no measurement was fitted to."""
    if serving.draft is None:
        yield "ngram_s"
        yield "ngram_match"
    if is_tree(serving.pair):
        yield "tree_width"
    if serving.pair.through_bls:
        yield "round_trip_s"
