"""Kernel tables made of straight lines, so that what is read from them is known."""

from __future__ import annotations

from specdeploy.core.speed.load import as_array
from specdeploy.core.speed.measured_table import Curve, MeasuredTable, Surface

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
