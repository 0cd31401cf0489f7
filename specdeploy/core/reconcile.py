"""Hold what a config says against what the weight files' headers say."""

from __future__ import annotations

from specdeploy.core.checkpoint import CheckpointContents
from specdeploy.core.families.common import DTYPE_BYTES
from specdeploy.core.models import ModelSpec
from specdeploy.core.quantization import served_bytes
from specdeploy.core.tensors import (
    TensorGroups,
    TensorInfo,
    count_parameters,
    group_tensors,
    stored_bytes,
)
from specdeploy.errors import CheckpointError

_HINT = "download the checkpoint again, all of it; config.json and weights must be of one model"


def reconcile(spec: ModelSpec, contents: CheckpointContents) -> ModelSpec:
    """Return the spec with what the headers add.

    Raises:
        CheckpointError: the weight files are of another model, or incomplete.
    """
    if contents.tensors is None:
        return _without_headers(spec, contents.pickle_bytes)
    groups = group_tensors(
        contents.tensors,
        layers=None if spec.head else spec.layers,
        tied=spec.tie_word_embeddings,
    )
    if spec.head is None:
        _check_layers(spec, groups)
        _check_embedding(spec, groups.main)
    counted = count_parameters(_own(spec, groups.main))
    spec = _with_count(spec, counted)
    return spec.evolve(
        weight_bytes_stored=stored_bytes(contents.tensors),
        weight_bytes=_served(spec, groups),
        mtp_parameters=_mtp(spec, groups),
        notes=[*spec.notes, *_notes(spec, groups)],
    )


def _without_headers(spec: ModelSpec, pickle_bytes: int | None) -> ModelSpec:
    if pickle_bytes is None:
        return spec
    note = "weights are pickle files, which are never opened: only their size was read"
    return spec.evolve(weight_bytes_stored=pickle_bytes, notes=[*spec.notes, note])


def _check_layers(spec: ModelSpec, groups: TensorGroups) -> None:
    missing = sorted(set(range(spec.layers)) - groups.layers)
    # A pruned block may hold nothing at all.
    if missing and not _has_empty_blocks(spec):
        shown = ", ".join(str(index) for index in missing[:5])
        raise CheckpointError(
            f"the weight files hold no tensors of {len(missing)} of {spec.layers} layers "
            f"(first: {shown})",
            hint=_HINT,
        )


def _has_empty_blocks(spec: ModelSpec) -> bool:
    cached = sum(group.layers for group in spec.kv_layers)
    return cached < spec.layers and not spec.state_bytes_per_sequence


def _check_embedding(spec: ModelSpec, main: list[TensorInfo]) -> None:
    tables = [t for t in main if t.is_embedding and t.is_floating and t.shape]
    for tensor in tables[:1]:
        if tensor.shape[0] != spec.vocab_size:
            raise CheckpointError(
                f"{tensor.name!r:.80} has {tensor.shape[0]} rows; "
                f"config.json says vocab_size {spec.vocab_size}",
                hint=_HINT,
            )


def _own(spec: ModelSpec, main: list[TensorInfo]) -> list[TensorInfo]:
    """Leave out the embedding that a draft head takes from its target."""
    if spec.head is None or spec.head.target_hidden_size != spec.hidden_size:
        return main
    return [tensor for tensor in main if not tensor.is_embedding]


def _with_count(spec: ModelSpec, counted: int | None) -> ModelSpec:
    if counted is None or counted == spec.parameters or spec.breakdown is None:
        return spec
    # A head may take its output projection from the target.
    if counted < spec.parameters - (spec.breakdown.lm_head if spec.head else 0):
        raise CheckpointError(
            f"the weight files hold {counted:,} of the {spec.parameters:,} parameters "
            "that config.json describes",
            hint=_HINT,
        )
    difference = counted - spec.parameters
    note = f"the weight files hold {difference:+,} parameters against the family's; theirs count"
    parts = spec.breakdown.evolve(other=spec.breakdown.other + difference)
    return spec.evolve(
        parameters=counted,
        active_parameters=(spec.active_parameters or spec.parameters) + difference,
        breakdown=parts,
        weight_bytes=served_bytes(
            parts, dtype_bytes=DTYPE_BYTES[spec.dtype], quantization=spec.quantization
        ),
        notes=[*spec.notes, note],
    )


def _served(spec: ModelSpec, groups: TensorGroups) -> int | None:
    """Quantized weights are served as they are stored; others in the config's type."""
    if spec.quantization is None:
        return spec.weight_bytes
    return stored_bytes(_own(spec, groups.main))


def _mtp(spec: ModelSpec, groups: TensorGroups) -> int:
    if not groups.mtp:
        return spec.mtp_parameters
    shared = [t for t in groups.mtp if not (t.is_embedding or "shared_head.head" in t.name)]
    return count_parameters(shared) or spec.mtp_parameters


def _notes(spec: ModelSpec, groups: TensorGroups) -> list[str]:
    notes = []
    if groups.vision:
        notes.append(
            f"{stored_bytes(groups.vision):,} stored bytes are of the vision part, "
            "which is not counted"
        )
    if groups.mtp:
        notes.append(
            f"{stored_bytes(groups.mtp):,} stored bytes are of MTP modules, which are not counted"
        )
    if spec.tie_word_embeddings and any(t.is_lm_head for t in groups.unserved):
        notes.append("the output projection is stored although it is tied to the embedding")
    return notes
