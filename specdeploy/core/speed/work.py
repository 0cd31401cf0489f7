"""What one forward pass of a served model reads and multiplies, on one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specdeploy.core.kv_cache import KV_BITS, heads_per_gpu
from specdeploy.core.models import KvWidth, ModelSpec, ParameterBreakdown
from specdeploy.core.served import ServedModel

_HALF_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers with one window: bytes that each token of context costs to read."""

    bytes_per_token: float
    window: int | None


@dataclass(frozen=True, slots=True)
class Work:
    """Amounts per GPU.

    Attributes:
        dense_bytes: Weights that every pass reads; no embedding table, no LM head.
        expert_bytes: Weights of all routed experts.
        expert_share: Routed parameters that one token uses, by all of them.
        dense_flops: Per token: two per weight that it is multiplied with, LM head apart.
        expert_flops: Per token: the same for the routed experts that it uses.
        head_bytes: The LM head.
        head_flops: The LM head, per position that logits are computed for.
        cache: The KV cache, by window.
        attention_flops: Attention products per token and token of context.
        latent: Layers keep a latent (MLA) in place of keys and values.
        state_bytes: Fixed state of linear-attention layers, per request.
    """

    dense_bytes: float
    expert_bytes: float
    expert_share: float
    dense_flops: float
    expert_flops: float
    head_bytes: float
    head_flops: float
    cache: tuple[CacheGroup, ...]
    attention_flops: float
    latent: bool
    state_bytes: float


def work_of(model: ServedModel) -> Work:
    """Return the amounts for one model as it is served."""
    spec, tp = model.spec, model.tp
    parts = _parts(spec)
    head = parts.lm_head or spec.vocab_size * spec.hidden_size
    kept_bytes = _HALF_BYTES if model.precision.quantized else model.precision.weight_bits / 8
    kept = (parts.embedding + parts.lm_head) * float(kept_bytes) / tp
    body = max(model.weight_bytes - kept, 0.0)
    inside = max(parts.total - parts.embedding - parts.lm_head, 1)
    active = (spec.active_parameters or spec.parameters) - parts.embedding - parts.lm_head
    dense = inside - parts.experts
    share = min(max((active - dense) / parts.experts, 0.0), 1.0) if parts.experts else 0.0
    return Work(
        dense_bytes=body * dense / inside,
        expert_bytes=body * parts.experts / inside,
        expert_share=share,
        dense_flops=2.0 * dense / tp,
        expert_flops=2.0 * share * parts.experts / tp,
        head_bytes=head * float(kept_bytes) / tp,
        head_flops=2.0 * head / tp,
        cache=_cache(model),
        attention_flops=_attention_flops(spec) / tp,
        latent=any(_is_latent(group.width, spec) for group in spec.kv_layers),
        state_bytes=float(model.state_bytes_per_sequence),
    )


def _parts(spec: ModelSpec) -> ParameterBreakdown:
    if spec.breakdown is not None:
        return spec.breakdown
    # Counted from tensor headers: the table is known, the rest is taken as dense.
    table = min(spec.vocab_size * spec.hidden_size, spec.parameters)
    head = 0 if spec.tie_word_embeddings else min(table, spec.parameters - table)
    rest = spec.parameters - table - head
    return ParameterBreakdown(embedding=table, lm_head=head, attention=0, mlp=rest, other=0)


def _cache(model: ServedModel) -> tuple[CacheGroup, ...]:
    bits = KV_BITS[model.kv_dtype]
    return tuple(
        CacheGroup(
            bytes_per_token=group.layers
            * heads_per_gpu(group.width.kv_heads, model.tp)
            * group.width.values_per_head
            * bits
            / 8,
            window=group.width.window,
        )
        for group in model.spec.kv_layers
    )


def _is_latent(width: KvWidth, spec: ModelSpec) -> bool:
    return width.kv_heads == 1 and width.values_per_head != 2 * spec.head_dim


def _attention_flops(spec: ModelSpec) -> float:
    """Two products (scores, sums) of ``head_dim`` per query head and layer that has a cache."""
    layers = sum(group.layers for group in spec.kv_layers)
    return 4.0 * layers * spec.attention_heads * spec.head_dim
