"""Parameter counts and KV widths of the parts that decoder layers are made of.

Every count is of weights (and biases) as published, in elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdeploy.core.models import KvWidth


@dataclass(frozen=True)
class Layer:
    """One decoder layer: parameters by role, and what it keeps per token."""

    attention: int = 0
    mlp: int = 0
    experts: int = 0
    other: int = 0
    idle: int = 0
    kv: KvWidth | None = None
    state_bytes: int = 0

    @property
    def parameters(self) -> int:
        """All of them, experts that a token does not use included."""
        return self.attention + self.mlp + self.experts + self.other


@dataclass(frozen=True)
class Stack:
    """A whole decoder: what stands around the layers, and the layers."""

    embedding: int
    lm_head: int
    other: int
    layers: list[Layer]
    mtp: int = 0


@dataclass(frozen=True)
class Heads:
    """Attention geometry: hidden width, query heads, KV heads, width of a head."""

    hidden: int
    queries: int
    keys: int
    head_dim: int


def linear(inputs: int, outputs: int, *, bias: bool = False) -> int:
    """Parameters of one dense projection."""
    return inputs * outputs + (outputs if bias else 0)


def norm(width: int, *, bias: bool = False) -> int:
    """Parameters of RMSNorm (no bias) or LayerNorm."""
    return 2 * width if bias else width


def gqa(heads: Heads, *, qkv_bias: bool = False, o_bias: bool = False, gate: bool = False) -> int:
    """Projections of grouped-query attention; separate or fused makes no difference.

    ``gate`` doubles the query projection (an output gate).
    """
    queries = heads.queries * heads.head_dim
    keys = heads.keys * heads.head_dim
    width = queries * (2 if gate else 1) + 2 * keys
    return linear(heads.hidden, width, bias=qkv_bias) + linear(queries, heads.hidden, bias=o_bias)


def mlp(hidden: int, inner: int, *, gated: bool = True, bias: bool = False) -> int:
    """Feed-forward block: two projections up (one when not gated) and one down."""
    ups = 2 if gated else 1
    return ups * linear(hidden, inner, bias=bias) + linear(inner, hidden, bias=bias)
