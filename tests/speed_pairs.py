"""Served pairs and loads to predict the speed of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from planning_models import model_named

from specdeploy.core.hardware import GpuRates, GpuSpec, find_gpu
from specdeploy.core.models import DraftHeadSpec, HeadKind, KvLayers, KvWidth, ModelSpec
from specdeploy.core.served import ServedModel, ServedPair, serve_model
from specdeploy.core.speed import DEFAULT, Constants, Load
from specdeploy.core.speed.measured import Measured
from specdeploy.core.speed.serving import Serving
from specdeploy.core.speed.steady import serve_steadily

H100 = find_gpu("h100-sxm")
LOAD = Load(batch=8, input_len=1024, output_len=512)


def target(*, tp: int = 1, precision: str = "fp8", name: str = "Llama-3.1-70B") -> ServedModel:
    return serve_model(model_named(name), precision=precision, tp=tp)


def draft(*, tp: int = 1) -> ServedModel:
    return serve_model(model_named("Llama-3.2-1B"), precision="fp8", tp=tp)


def a_pair(*, tp: int = 1, through_bls: bool = False) -> ServedPair:
    return ServedPair(target(tp=tp), draft(), "draft_target", through_bls=through_bls)


def a_head(kind: HeadKind) -> ModelSpec:
    head = model_named("EAGLE3 head for Llama-3.1-8B")
    return head.evolve(head=DraftHeadSpec(kind=kind))


def with_head(kind: HeadKind) -> ServedPair:
    eight = target(name="Llama-3.1-8B", precision="bf16")
    return ServedPair(eight, serve_model(a_head(kind)), "draft_target")


def plain_model(**changes: object) -> ModelSpec:
    """Return a model with round sizes: 2 layers, a window on one of them where asked."""
    spec = model_named("Llama-3.2-1B")
    width = KvWidth(kv_heads=8, values_per_head=128)
    return spec.evolve(kv_layers=[KvLayers(layers=2, width=width)], **changes)


def gpu_with(**rates: float) -> GpuSpec:
    known = H100.rates
    assert known is not None
    return H100.evolve(rates=GpuRates.model_validate({**dict(known), **rates}))


def measured(
    constants: Constants, *, noise: Callable[[int], float] = lambda _: 1.0, points: int = 12
) -> Measured:
    """Return points of one deployment as ``constants`` would have them, times ``noise``."""
    serving = Serving.of(ServedPair(target(tp=2)), H100, DEFAULT)
    index = np.arange(points)
    load = Load(2.0 ** (index % 6), 512.0 * (1 + index % 3), 128.0 * (1 + index % 4))
    none, one = np.zeros(points), np.ones(points)
    way = serve_steadily(serving.using(constants), load, draft_length=none, tokens_per_step=one)
    factor = np.array([noise(i) for i in index])
    return Measured(serving, load, 1e3 * way.ttft * factor, 1e3 * way.tpot * factor, none, one)
