"""What a GPU holds beside the KV pools: one formula per component.

Every function takes sizes of any shape, so that a plan and a grid cannot disagree; the text of a
formula is written for one setting only. The constants and their sources are in ``workspace``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from specdeploy.core.memory.request import GpuMemory, LoraAdapters, MemoryRequest
from specdeploy.core.memory.sizes import Sizes, Whole, shown, whole
from specdeploy.core.memory.workspace import Workspace
from specdeploy.core.models import ModelSpec
from specdeploy.core.served import ServedModel

Role = Literal["target", "draft"]
Owner = Literal["card", "gpu", "target", "draft"]
# Batch sizes that a padded set of CUDA graphs is captured for: 1, 2, 4, then every 8th up to
# 128, then every 64th.
_DENSE_STEP: Final = 8
_DENSE_LAST: Final = 128
_SPARSE_STEP: Final = 64
_LORA_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Engine:
    """One model as one GPU holds it."""

    role: Role
    model: ServedModel

    @property
    def vocabulary(self) -> int:
        """Width of its logits; a draft head's own where it has one."""
        head = self.model.spec.head
        return (head.draft_vocab_size if head else None) or self.model.spec.vocab_size


@dataclass(frozen=True, slots=True)
class Term:
    """One component, and whose it is.

    ``card`` is there whatever we do, ``gpu`` with our first process; the rest loads with a model.
    """

    owner: Owner
    name: str
    size: Whole
    formula: str


def card_terms(memory: GpuMemory, workspace: Workspace) -> Iterator[Term]:
    """Yield what is on the GPU before a model is loaded."""
    yield Term("card", "other processes", whole(memory.held_bytes), "as the driver reports")
    formula = (
        "total - free - other processes"
        if memory.free_bytes is not None
        else "256 MiB + total / 320, what CUDA does not show of the card"
    )
    yield Term("card", "driver reserve", whole(memory.reserve_bytes), formula)
    context = whole(workspace.cuda_context_bytes)
    yield Term("gpu", "CUDA context", context, "context and libraries, once per GPU")


def engine_terms(engine: Engine, sizes: Sizes, request: MemoryRequest) -> Iterator[Term]:
    """Yield what one model takes on one of its GPUs when it loads, KV apart."""
    role, model, workspace = engine.role, engine.model, request.workspace
    precision = model.precision.name
    yield Term(
        role,
        f"{role} weights",
        whole(model.weight_bytes),
        f"{model.spec.parameters:,} parameters in {precision} / tp {model.tp}",
    )
    yield _activations(engine, sizes, workspace)
    yield Term(
        role,
        f"{role} runtime buffers",
        sizes.batch * sizes.max_seq_len * workspace.position_bytes,
        f"{shown(sizes.batch)} slots x {shown(sizes.max_seq_len)} positions "
        f"x {workspace.position_bytes} B",
    )
    yield Term(
        role,
        f"{role} decoder buffers",
        sizes.batch * (engine.vocabulary * workspace.decoder_value_bytes),
        f"{shown(sizes.batch)} slots x {engine.vocabulary:,} vocabulary "
        f"x {workspace.decoder_value_bytes} B",
    )
    yield _logits(engine, sizes, workspace)
    if request.cuda_graphs:
        yield _graphs(role, sizes, workspace)
    if model.tp > 1:
        nccl = whole(workspace.nccl_bytes)
        yield Term(role, f"{role} NCCL", nccl, f"communication buffers at tp {model.tp}")
    if request.lora is not None and role == "target":
        yield _lora(model.spec, request.lora)


def activation_bytes_per_token(model: ServedModel, workspace: Workspace) -> int:
    """Return what one token of ``max_num_tokens`` takes in the execution context, per GPU.

    The tensors of one layer, which the next one takes over: two of the hidden size, the heads'
    queries, keys and values, and the two of the feed-forward block, the last two over tp. With
    experts, a token is copied for each that it is sent to.
    """
    spec = model.spec
    split = (spec.attention_heads + 2 * spec.kv_heads) * spec.head_dim
    split += 2 * feed_forward_width(spec)
    values = 2 * spec.hidden_size + split / model.tp
    if spec.breakdown is not None and spec.breakdown.experts:
        values += workspace.expert_copies * spec.hidden_size
    if model.precision.unit != "half":
        values *= workspace.quantized_activations
    return math.ceil(values * workspace.activation_value_bytes)


def feed_forward_width(spec: ModelSpec) -> int:
    """Return the intermediate values of one token in one layer.

    With experts, those that a token uses, from their parameters: three matrices each.
    """
    parts = spec.breakdown
    if parts is not None and parts.experts and spec.active_parameters is not None:
        used = parts.mlp + parts.experts - (spec.parameters - spec.active_parameters)
        return -(-used // (3 * spec.hidden_size * spec.layers))
    return spec.intermediate_size or 4 * spec.hidden_size


def _activations(engine: Engine, sizes: Sizes, workspace: Workspace) -> Term:
    """Return the execution context: fixed at build time, for the largest step."""
    model, role = engine.model, engine.role
    rows = sizes.rows if role == "target" else sizes.batch
    tokens = np.maximum(sizes.max_num_tokens, rows)
    per_token = activation_bytes_per_token(model, workspace)
    per_row = -(-engine.vocabulary * workspace.output_row_bytes // model.tp)
    return Term(
        role,
        f"{role} activations",
        tokens * per_token + rows * per_row + workspace.scratch_bytes,
        f"{shown(tokens)} tokens x {per_token:,} B + {shown(rows)} rows x {per_row:,} B "
        f"+ {workspace.scratch_bytes:,} B",
    )


def _logits(engine: Engine, sizes: Sizes, workspace: Workspace) -> Term:
    """Return the logits that are kept: of every verified row, and of every drafted token."""
    row = engine.vocabulary * workspace.logits_bytes
    if engine.role == "target":
        text = f"{shown(sizes.batch)} x ({shown(sizes.draft_length)} + 1) rows x {row:,} B"
        return Term("target", "target logits", sizes.rows * row, text)
    text = f"{shown(sizes.batch)} x {shown(sizes.draft_length)} rows x {row:,} B"
    return Term("draft", "draft logits", sizes.batch * sizes.draft_length * row, text)


def _graphs(role: Role, sizes: Sizes, workspace: Workspace) -> Term:
    batch = sizes.batch
    count = np.minimum(batch, _DENSE_LAST) // _DENSE_STEP
    count = count + np.maximum(batch - _DENSE_LAST, 0) // _SPARSE_STEP
    for small in (1, 2, 4):
        count = count + (batch >= small)
    lengths = 1 + np.minimum(sizes.draft_length, 1)
    return Term(
        role,
        f"{role} CUDA graphs",
        count * lengths * workspace.graph_bytes,
        f"{shown(count)} batch sizes x {shown(lengths)} draft lengths "
        f"x {workspace.graph_bytes:,} B",
    )


def _lora(spec: ModelSpec, lora: LoraAdapters) -> Term:
    """Return the adapters of every projection, 16 bit, as one GPU alone would hold them."""
    hidden = spec.hidden_size
    queries, keys = spec.attention_heads * spec.head_dim, spec.kv_heads * spec.head_dim
    ends = 2 * (hidden + queries) + 2 * (hidden + keys)
    ends += 3 * (hidden + feed_forward_width(spec))
    size = lora.count * lora.rank * ends * spec.layers * _LORA_BYTES
    text = (
        f"{lora.count} adapters x rank {lora.rank} x {ends:,} values x {spec.layers} layers x 2 B"
    )
    return Term("target", "target LoRA adapters", whole(size), text)
