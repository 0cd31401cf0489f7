"""A model as it is served: what memory and time are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdeploy.core.kv_cache import kv_bytes_per_token, resolve_kv_dtype
from specdeploy.core.models import ModelSpec
from specdeploy.core.precision import AUTO, Precision, resolve_precision, weight_bytes
from specdeploy.core.repository import Method

if TYPE_CHECKING:
    # At run time the package of the speed model imports this module.
    from specdeploy.core.speed.measured_table import MeasuredTable


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model in one precision on ``tp`` GPUs. All bytes are per GPU.

    ``measured`` holds timed kernels, which then stand for the roofline of its passes.
    """

    spec: ModelSpec
    precision: Precision
    kv_dtype: str
    tp: int
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes_per_token_full: int
    state_bytes_per_sequence: int
    measured: MeasuredTable | None = None


@dataclass(frozen=True, slots=True)
class ServedPair:
    """A target, and what drafts for it.

    ``draft`` is None for prompt lookup and without speculation. A draft on GPUs of its own
    (``draft_apart``) shares none with the target; otherwise it is on the target's first
    ``draft.tp`` GPUs. ``through_bls`` is the engine shape: a Triton model calls draft and
    target in turn.
    """

    target: ServedModel
    draft: ServedModel | None = None
    method: Method = "none"
    draft_apart: bool = False
    through_bls: bool = False


def serve_model(
    spec: ModelSpec, *, precision: str = AUTO, kv_dtype: str = AUTO, tp: int = 1
) -> ServedModel:
    """Return ``spec`` as it is served.

    Weights are spread evenly over the GPUs. A target's EAGLE head and the like are served with
    the target's ``tp``.

    Raises:
        ConfigError: the heads cannot be spread so, or the precision is not known.
        CheckpointError: the checkpoint declares a KV type that is not known.
    """
    used = resolve_kv_dtype(kv_dtype, spec)
    form = resolve_precision(precision, spec)
    layers = spec.kv_layers
    return ServedModel(
        spec=spec,
        precision=form,
        kv_dtype=used,
        tp=tp,
        weight_bytes=-(-weight_bytes(spec, form) // tp),
        kv_bytes_per_token=kv_bytes_per_token(layers, kv_dtype=used, tp=tp),
        kv_bytes_per_token_full=kv_bytes_per_token(
            layers, kv_dtype=used, tp=tp, beyond_window=True
        ),
        state_bytes_per_sequence=-(-spec.state_bytes_per_sequence // tp),
    )
