"""``specdeploy inspect``: a checkpoint's sizes, for one way of serving it."""

from __future__ import annotations

from pydantic import Field

from specdeploy.core.kv_cache import kv_bytes_per_token, resolve_kv_dtype
from specdeploy.core.models import (
    DraftHeadSpec,
    KvLayers,
    ModelSpec,
    ParameterBreakdown,
    QuantizationSpec,
    RopeSpec,
    SpecialIds,
    VocabularySpec,
)
from specdeploy.core.precision import AUTO
from specdeploy.core.record import Document


class Inspection(Document):
    """What ``inspect --json`` prints. Bytes are whole numbers; null means not known."""

    path: str
    name: str
    architecture: str
    model_type: str
    known_family: bool
    multimodal: bool
    parameters: int = Field(
        description="Main model, without MTP modules and embeddings shared with a target."
    )
    active_parameters: int = Field(description="Used for one token.")
    mtp_parameters: int
    breakdown: ParameterBreakdown | None
    dtype: str
    quantization: QuantizationSpec | None
    weight_bytes_stored: int | None = Field(description="None: no weight files.")
    weight_bytes: int | None = Field(description="As served, all GPUs together.")
    tp: int
    kv_dtype: str
    kv_bytes_per_token: int = Field(description="Per GPU, all KV layers, inside their windows.")
    kv_bytes_per_token_full: int = Field(
        description="Per GPU beyond every window: layers that go on growing."
    )
    kv_layers: list[KvLayers]
    state_bytes_per_sequence: int
    hidden_size: int
    layers: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int | None
    context_length: int
    tie_word_embeddings: bool
    vocab_size: int
    vocabulary: VocabularySpec | None
    special_ids: SpecialIds
    rope: RopeSpec
    head: DraftHeadSpec | None
    notes: list[str]


def inspect_model(spec: ModelSpec, *, path: str, tp: int = 1, kv_dtype: str = AUTO) -> Inspection:
    """Return a model's sizes at ``tp`` GPUs with a KV cache of type ``kv_dtype``.

    Raises:
        ConfigError: the KV heads cannot be spread so, or there is no such KV type.
    """
    used = resolve_kv_dtype(kv_dtype, spec)
    facts = {name: value for name, value in dict(spec).items() if name in Inspection.model_fields}
    return Inspection.model_validate(
        {
            **facts,
            "path": path,
            "active_parameters": spec.active_parameters or spec.parameters,
            "tp": tp,
            "kv_dtype": used,
            "kv_bytes_per_token": kv_bytes_per_token(spec.kv_layers, kv_dtype=used, tp=tp),
            "kv_bytes_per_token_full": kv_bytes_per_token(
                spec.kv_layers, kv_dtype=used, tp=tp, beyond_window=True
            ),
            "notes": [*spec.notes, *_notes(spec, tp=tp, kv_dtype=used)],
        }
    )


def _notes(spec: ModelSpec, *, tp: int, kv_dtype: str) -> list[str]:
    notes = []
    if spec.attention_heads % tp:
        notes.append(f"{spec.attention_heads} attention heads cannot be split over tp {tp}")
    if kv_dtype in {"fp4", "nvfp4", "int4"}:
        notes.append("the block scales of a 4-bit KV cache (1/16 byte per value) are not counted")
    if spec.state_bytes_per_sequence:
        notes.append("linear-attention layers keep a fixed state per sequence beside the KV cache")
    return notes
