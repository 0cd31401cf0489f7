"""Kernel tables made of straight lines, so that what is read from them is known."""

from __future__ import annotations

from pathlib import Path

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.served import ServedModel
from specdeploy.core.speed.load import as_array
from specdeploy.core.speed.measured_table import Curve, MeasuredTable, NotMeasured, Surface
from specdeploy.errors import MissingToolError

PRODUCTS_S = 4e-3
LAYERS_S = 1e-4
ALL_REDUCE_S = 3e-4
HEAD_S = 5e-4
PER_CACHED_TOKEN_S = 1e-9
PER_SEQUENCE_S = 1e-6
PER_PROMPT_TOKEN_S = 1e-7


def line(constant: float, slope: float = 0.0) -> Curve:
    """Return ``constant + slope * size`` between 1 and 1024."""
    sizes = as_array([1, 16, 1024])
    return Curve(sizes, constant + slope * sizes)


def a_table() -> MeasuredTable:
    """Return a table: decoding costs by cached token and by sequence, prompts by token."""
    requests, contexts = as_array([1, 8, 64]), as_array([2, 128, 8192])
    sequences, prompts = as_array([1, 4]), as_array([16, 4096])
    return MeasuredTable(
        origin="straight lines",
        products=line(PRODUCTS_S, 1e-6),
        layers=line(LAYERS_S),
        all_reduce=line(ALL_REDUCE_S),
        lm_head=line(HEAD_S, 1e-7),
        decode=Surface(
            requests,
            contexts,
            requests[:, None] * (PER_SEQUENCE_S + PER_CACHED_TOKEN_S * contexts[None, :]),
        ),
        prompt=Surface(
            sequences, prompts, sequences[:, None] * PER_PROMPT_TOKEN_S * prompts[None, :]
        ),
    )


class FakeTables:
    """Has tables of some checkpoints; remembers what was asked for."""

    def __init__(self, *timed: Path, installed: bool = True) -> None:
        self.timed, self.installed = timed, installed
        self.asked: list[Path] = []

    def table(
        self, model: ServedModel, gpu: GpuSpec, *, checkpoint: Path
    ) -> MeasuredTable | NotMeasured:
        """Return a table, or say that there is none."""
        assert model.measured is None
        assert gpu.rates is not None
        self.asked.append(checkpoint)
        if not self.installed:
            raise MissingToolError("not installed", hint="install it")
        return a_table() if checkpoint in self.timed else NotMeasured("nobody timed it")
