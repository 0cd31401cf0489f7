"""Published speedups that name all that the model needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, cast

from specdeploy.core.hardware import GpuSpec, find_gpu
from specdeploy.core.models import DraftHeadSpec, KvLayers, KvWidth, ModelSpec, ParameterBreakdown
from specdeploy.core.served import ServedModel, ServedPair, serve_model
from specdeploy.core.speed import Constants, Load, mtp_head, speed_grid
from specdeploy.errors import ConfigError
from speed_fit.rows import model_of, published_records

# Where a record does not state its lengths.
_INPUT, _OUTPUT = 512, 256
_NEEDED: Final = ("target", "gpu", "batch", "draft_len", "tau", "speedup")
_TARGETS: Final = {
    "DeepSeek-R1": "deepseek-ai/DeepSeek-R1",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
}


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """One record: what was measured, and the deployment that it was measured on."""

    name: str
    curve: str
    pair: ServedPair
    gpu: GpuSpec
    load: Load
    draft_length: int
    tokens_per_step: float
    speedup: float

    @property
    def possible(self) -> bool:
        """Whether the speedup is not above the tokens per step, which no engine can reach."""
        return self.speedup <= self.tokens_per_step

    def predicted(self, constants: Constants) -> float:
        """Return the speedup that the model expects."""
        grid = speed_grid(
            self.pair,
            self.gpu,
            self.load,
            draft_length=self.draft_length,
            tokens_per_step=self.tokens_per_step,
            constants=constants,
        )
        return float(grid.baseline_tpot_ms / grid.tpot_ms)


def read_points() -> list[PublishedPoint]:
    """Return every record that names target, a GPU of the table, batch, k and tokens per step.

    A record without draft tokens is the baseline of others and no prediction.
    """
    points = []
    for record in published_records():
        gpu = _gpu(record)
        if gpu is not None and record["draft_len"]:
            points.append(_point(record, gpu))
    return points


def curves_of(points: Sequence[PublishedPoint]) -> Mapping[str, list[PublishedPoint]]:
    """Return the points by the sweep of draft lengths that they belong to."""
    names = dict.fromkeys(point.curve for point in points)
    return {name: [point for point in points if point.curve == name] for name in names}


def best_length(points: Sequence[PublishedPoint], speedups: Sequence[float]) -> int:
    """Return the draft length with the highest of ``speedups``."""
    return max(zip(speedups, points, strict=True), key=lambda each: each[0])[1].draft_length


def _gpu(record: Mapping[str, object]) -> GpuSpec | None:
    if any(record.get(name) is None for name in _NEEDED):
        return None
    try:
        return find_gpu(str(record["gpu"]))
    except ConfigError:
        return None


def _point(record: Mapping[str, object], gpu: GpuSpec) -> PublishedPoint:
    lengths = (record["input_len"] or _INPUT, record["output_len"] or _OUTPUT)
    name = str(record["id"])
    return PublishedPoint(
        name=name,
        curve=name.rpartition("-")[0] if record["method"] != "ngram" else name,
        pair=_pair(record),
        gpu=gpu,
        load=Load(cast("int", record["batch"]), *map(float, map(str, lengths))),
        draft_length=cast("int", record["draft_len"]),
        tokens_per_step=cast("float", record["tau"]),
        speedup=cast("float", record["speedup"]),
    )


def _pair(record: Mapping[str, object]) -> ServedPair:
    tp = cast("int", record["n_gpus"])
    target = serve_model(_target(str(record["target"])), precision=_precision(record), tp=tp)
    if record["method"] == "ngram":
        return ServedPair(target, method="ngram")
    return ServedPair(target, _draft(str(record["method"]), target.spec, tp), "draft_target")


def _draft(method: str, target: ModelSpec, tp: int) -> ServedModel:
    head = mtp_head(target) if method == "mtp" else _eagle_head(target)
    return serve_model(head, precision="bf16", tp=tp)


def _precision(record: Mapping[str, object]) -> str:
    return "nvfp4" if "nvfp4" in str(record["dtype"]) else str(record["dtype"])


def _target(name: str) -> ModelSpec:
    if name.startswith("Llama-4-Scout"):
        return _scout()
    return model_of(next(path for begin, path in _TARGETS.items() if name.startswith(begin)))


def _eagle_head(target: ModelSpec) -> ModelSpec:
    """Return a first-generation EAGLE head: a layer, a projection, the target's LM head."""
    parts = target.breakdown
    assert parts is not None  # noqa: S101 - recorded configurations have one
    attention, mlp = parts.attention // target.layers, parts.mlp // target.layers
    fusing = 2 * target.hidden_size**2
    return target.evolve(
        name=f"EAGLE head of {target.name}",
        layers=1,
        parameters=attention + mlp + fusing,
        active_parameters=None,
        weight_bytes=None,
        breakdown=ParameterBreakdown(
            embedding=0, lm_head=0, attention=attention, mlp=mlp, other=fusing
        ),
        kv_layers=[group.evolve(layers=1) for group in target.kv_layers],
        head=DraftHeadSpec(kind="eagle", target_hidden_size=target.hidden_size),
    )


@cache
def _scout() -> ModelSpec:
    """Return Llama-4-Scout-17B-16E by its published sizes; no configuration of it is recorded."""
    hidden, layers, inner, vocabulary = 5120, 48, 8192, 202048
    parts = ParameterBreakdown(
        embedding=vocabulary * hidden,
        lm_head=vocabulary * hidden,
        attention=layers * hidden * 128 * 2 * (40 + 8),
        mlp=layers * 3 * hidden * inner,
        experts=layers * 16 * 3 * hidden * inner,
        other=0,
    )
    return ModelSpec(
        name="Llama-4-Scout-17B-16E",
        architecture="Llama4ForConditionalGeneration",
        model_type="llama4",
        hidden_size=hidden,
        layers=layers,
        attention_heads=40,
        kv_heads=8,
        head_dim=128,
        vocab_size=vocabulary,
        context_length=262144,
        dtype="bfloat16",
        tie_word_embeddings=False,
        parameters=parts.total,
        active_parameters=parts.total - parts.experts * 15 // 16,
        breakdown=parts,
        kv_layers=[KvLayers(layers=layers, width=KvWidth(kv_heads=8, values_per_head=256))],
    )
