"""Families that are not known: what tensor headers alone can tell, else a refusal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from specdeploy.core.checkpoint import CheckpointContents
from specdeploy.core.families.attention import kv_layout_unknown
from specdeploy.core.families.facts import ConfigFacts
from specdeploy.core.models import KvWidth, ParameterBreakdown
from specdeploy.core.tensors import TensorInfo, count_parameters, group_tensors
from specdeploy.errors import CheckpointError

# Keys of caches that are not plain keys and values per layer.
_UNPLAIN_KEYS: Final = (
    "compress_ratios",
    "o_lora_rank",
    "num_kv_shared_layers",
    "attention_chunk_size",
    "index_topk",
    "block_configs",
)
_CACHELESS: Final = frozenset({"linear_attention", "mamba", "conv", "recurrent"})
# Parts of layers that keep something else than keys and values.
_STATE_MARKS: Final = ("A_log", "conv1d", "dt_bias", "indexer", "cross_attn")
_KEY_VALUE: Final = frozenset({"k_proj", "v_proj", "kv_a_proj_with_mqa"})
_FULL, _SLIDING = "full_attention", "sliding_attention"


def family_unknown(architecture: str, model_type: str | None) -> CheckpointError:
    """Return the refusal of a family that has no weight files to look at."""
    return kv_layout_unknown(
        architecture or "no architecture named",
        reason=f"model_type {model_type or 'absent'} is not a known family",
        hint="with the safetensors files in the directory its sizes are read from their headers",
    )


def count_unknown(
    contents: CheckpointContents, facts: ConfigFacts, *, architecture: str
) -> tuple[ParameterBreakdown, list[KvWidth | None]]:
    """Count a model of unknown family from its tensors.

    Returns:
        Parameters (those of the layers together, under ``other``) and each layer's KV width.

    Raises:
        CheckpointError: there are no headers, or they leave the KV layout open.
    """
    if contents.tensors is None:
        raise family_unknown(architecture, facts.text("model_type"))
    groups = group_tensors(
        contents.tensors,
        layers=facts.whole("num_hidden_layers"),
        tied=facts.flag("tie_word_embeddings"),
    )
    counted = count_parameters(groups.main)
    if not counted:
        raise CheckpointError(
            f"model family not known: {architecture}, and its packed weights cannot be counted"
        )
    embedding = sum(t.elements for t in groups.main if t.is_embedding)
    lm_head = sum(t.elements for t in groups.main if t.is_lm_head)
    parts = ParameterBreakdown(
        embedding=embedding,
        lm_head=lm_head,
        attention=0,
        mlp=0,
        other=counted - embedding - lm_head,
    )
    return parts, _kv_widths(facts, groups.main, architecture=architecture)


def _kv_widths(
    facts: ConfigFacts, tensors: list[TensorInfo], *, architecture: str
) -> list[KvWidth | None]:
    for key in _UNPLAIN_KEYS:
        if facts.get(key) is not None:
            raise kv_layout_unknown(architecture, reason=f"config.json sets {key}")
    by_layer: defaultdict[int | None, list[TensorInfo]] = defaultdict(list)
    for tensor in tensors:
        by_layer[tensor.layer].append(tensor)
    widths: list[KvWidth | None] = []
    for index, kind in enumerate(_kinds(facts, architecture)):
        if kind in _CACHELESS:
            widths.append(None)
        else:
            projections = _projections(by_layer[index], architecture)
            widths.append(_width(facts, projections, kind=kind, architecture=architecture))
    return widths


def _projections(layer: list[TensorInfo], architecture: str) -> dict[str, TensorInfo]:
    """Return the layer's key and value projections by their usual names."""
    found: dict[str, TensorInfo] = {}
    for tensor in layer:
        if any(mark in tensor.name for mark in _STATE_MARKS):
            raise kv_layout_unknown(architecture, reason=f"{tensor.name!r:.60} keeps a state")
        words = tensor.name.split(".")
        if words[-1] == "weight" and words[-2] in _KEY_VALUE:
            if words[-2] in found:
                raise kv_layout_unknown(architecture, reason=f"two {words[-2]} in one layer")
            found[words[-2]] = tensor
    return found


def _kinds(facts: ConfigFacts, architecture: str) -> list[object]:
    count = facts.whole("num_hidden_layers")
    listed = facts.items("layer_types")
    windowed = facts.get("sliding_window") and facts.get("use_sliding_window") is not False
    if listed is None:
        if windowed:
            raise kv_layout_unknown(
                architecture, reason="sliding_window is set and layer_types is not"
            )
        return [_FULL] * count
    if len(listed) != count or not {*map(str, listed)} <= {_FULL, _SLIDING, *_CACHELESS}:
        raise kv_layout_unknown(architecture, reason="layer_types is not understood")
    return listed


def _width(
    facts: ConfigFacts, projections: Mapping[str, TensorInfo], *, kind: object, architecture: str
) -> KvWidth:
    """Return the width that the key and value projections of a layer produce."""
    window = facts.whole("sliding_window") if kind == _SLIDING else None
    shared = projections.get("kv_a_proj_with_mqa")
    if shared is not None:
        return KvWidth(kv_heads=1, values_per_head=_rows(shared), window=window)
    keys, values = projections.get("k_proj"), projections.get("v_proj")
    if keys is None or values is None:
        raise kv_layout_unknown(architecture, reason="no k_proj and v_proj tensors in every layer")
    heads = facts.whole("num_key_value_heads", default=facts.whole("num_attention_heads"))
    rows = _rows(keys) + _rows(values)
    if _rows(keys) % heads or _rows(values) % heads:
        raise kv_layout_unknown(
            architecture, reason=f"k_proj has {_rows(keys)} rows for {heads} KV heads"
        )
    head_dim = facts.optional("head_dim")
    if head_dim is not None and heads * head_dim != _rows(keys):
        raise kv_layout_unknown(
            architecture, reason=f"k_proj has {_rows(keys)} rows, not {heads} x {head_dim}"
        )
    return KvWidth(kv_heads=heads, values_per_head=rows // heads, window=window)


def _rows(tensor: TensorInfo) -> int:
    return tensor.shape[0] if tensor.shape else 0
