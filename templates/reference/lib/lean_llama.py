"""A lean forward pass for plain Llama-style models: the same numbers, less Python per step.

A draft of a million parameters computes a step in a fraction of a millisecond, and the
generality of transformers costs several times that. Here projections are fused, rotary
tables are computed once, residuals are added inside the matrix products, and keys and
values lie in buffers that are allocated once.

In float32 the arg max equals that of transformers on every tested context; logits differ by
rounding only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from causal_lm import common_prefix
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

_FIRST_CAPACITY = 256

_STATIC_ROPE = {"default", "linear", "llama3", "yarn"}


def supports(model: Any) -> bool:  # noqa: ANN401 - transformers is not typed
    """Tell whether the lean pass computes what this transformers model computes."""
    config = model.config
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        type(model).__name__ in {"LlamaForCausalLM", "Qwen2ForCausalLM", "MistralForCausalLM"}
        and getattr(config, "quantization_config", None) is None
        and config.hidden_act == "silu"
        and "sliding_attention" not in (getattr(config, "layer_types", None) or ())
        and (getattr(config, "sliding_window", None) is None or type(model).__name__[0] == "Q")
        and not getattr(config, "mlp_bias", False)
        and model.model.layers[0].self_attn.o_proj.bias is None
        and rope.get("rope_type", "default") in _STATIC_ROPE
    )


@dataclass(frozen=True)
class Heads:
    """Sizes of the attention."""

    query: int
    kv: int
    size: int


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer; ``*_t`` matrices are stored transposed, as ``addmm`` wants them."""

    norm_in: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out_t: torch.Tensor
    norm_mid: torch.Tensor
    gate_up: torch.Tensor
    down_t: torch.Tensor


@final
class LeanLlama:
    """A :class:`causal_lm.CausalModel` made from a loaded transformers model."""

    supports_rewind = True

    def __init__(self, model: Any, end_ids: frozenset[int]) -> None:  # noqa: ANN401
        config = model.config
        self.vocab_size = int(config.vocab_size)
        self.context_length = int(config.max_position_embeddings)
        self.end_ids = end_ids
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.heads = Heads(config.num_attention_heads, config.num_key_value_heads, size)
        self.eps = float(config.rms_norm_eps)
        self.layers = [_layer_weights(layer) for layer in model.model.layers]
        self.embedding = model.model.embed_tokens.weight.detach()
        self.norm = model.model.norm.weight.detach()
        self.head = model.lm_head.weight.detach()
        self.cos, self.sin = _rotary_tables(model, self.context_length)

    def session(self) -> LeanSession:
        """Return a new, empty session."""
        return LeanSession(self)


@final
class LeanSession:
    """A :class:`causal_lm.Session` of a lean model."""

    def __init__(self, model: LeanLlama) -> None:
        self._model = model
        self.tokens: list[int] = []
        heads = model.heads
        shape = (len(model.layers), heads.kv, _FIRST_CAPACITY, heads.size)
        self._keys = model.embedding.new_empty(shape)
        self._values = model.embedding.new_empty(shape)
        self._split()

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return len(self.tokens)

    def shared(self, ids: Sequence[int]) -> int:
        """Count the tokens that need no reading; see :meth:`causal_lm.Session.shared`."""
        return common_prefix(self.tokens, ids, len(ids) - 1)

    def rewind(self, length: int) -> None:
        """Forget the tokens after ``length``."""
        del self.tokens[length:]

    def advance(self, ids: Sequence[int], *, keep: int = 0) -> torch.Tensor:
        """Read ``ids``; see :meth:`causal_lm.Session.advance`."""
        with torch.inference_mode():
            self._reserve(self.length + len(ids))
            logits = self._forward(list(ids), keep)
        self.tokens.extend(ids)
        return logits

    def _forward(self, ids: list[int], keep: int) -> torch.Tensor:
        model, eps = self._model, self._model.eps
        start = self.length
        x = model.embedding[ids]
        width = (x.shape[-1],)
        cos, sin = model.cos[start : start + len(ids)], model.sin[start : start + len(ids)]
        mask = _causal_mask(start, len(ids), x.dtype)
        for index, layer in enumerate(model.layers):
            qkv = linear(rms_norm(x, width, layer.norm_in, eps), layer.qkv, layer.qkv_bias)
            x = torch.addmm(x, self._attend(index, qkv, (cos, sin), mask), layer.out_t)
            gate, up = linear(rms_norm(x, width, layer.norm_mid, eps), layer.gate_up).chunk(2, -1)
            x = torch.addmm(x, silu(gate) * up, layer.down_t)
        logits: torch.Tensor = linear(rms_norm(x[-keep:], width, model.norm, eps), model.head)
        return logits.float()

    def _attend(
        self,
        index: int,
        qkv: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Rotate, store keys and values, and attend: ``[n, (query + 2 kv) size]`` in."""
        heads, n = self._model.heads, qkv.shape[0]
        rows = qkv.view(n, heads.query + 2 * heads.kv, heads.size)
        turned = rows[:, : heads.query + heads.kv]
        turned = torch.addcmul(turned * rotary[0], turned.roll(heads.size // 2, -1), rotary[1])
        start, end = self.length, self.length + n
        keys, values = self._layer_keys[index], self._layer_values[index]
        keys[:, start:end] = turned[:, heads.query :].transpose(0, 1)
        values[:, start:end] = rows[:, heads.query + heads.kv :].transpose(0, 1)
        mixed = scaled_dot_product_attention(
            turned[:, : heads.query].transpose(0, 1).unsqueeze(0),
            keys[:, :end].unsqueeze(0),
            values[:, :end].unsqueeze(0),
            attn_mask=mask,
            enable_gqa=heads.query != heads.kv,
        )
        return mixed.squeeze(0).transpose(0, 1).reshape(n, -1)

    def _reserve(self, length: int) -> None:
        capacity = self._keys.shape[2]
        if length <= capacity:
            return
        self._keys = _grown(self._keys, max(length, 2 * capacity))
        self._values = _grown(self._values, max(length, 2 * capacity))
        self._split()

    def _split(self) -> None:
        self._layer_keys = list(self._keys.unbind(0))
        self._layer_values = list(self._values.unbind(0))


def _grown(buffer: torch.Tensor, capacity: int) -> torch.Tensor:
    layers, heads, used, size = buffer.shape
    bigger = buffer.new_empty(layers, heads, capacity, size)
    bigger[:, :, :used] = buffer
    return bigger


def _causal_mask(start: int, n: int, dtype: torch.dtype) -> torch.Tensor | None:
    """Return ``[n, start + n]``, or None for one token, which sees everything."""
    if n == 1:
        return None
    return torch.full((n, start + n), float("-inf"), dtype=dtype).triu_(start + 1)


def _layer_weights(layer: Any) -> LayerWeights:  # noqa: ANN401
    """Fuse what reads the same input and transpose what is added to the residual."""
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weights = [p.weight.detach() for p in projections]
    biases = [p.bias.detach() for p in projections if p.bias is not None]
    return LayerWeights(
        norm_in=layer.input_layernorm.weight.detach(),
        qkv=torch.cat(weights),
        qkv_bias=torch.cat(biases) if biases else None,
        out_t=attention.o_proj.weight.detach().t().contiguous(),
        norm_mid=layer.post_attention_layernorm.weight.detach(),
        gate_up=torch.cat([mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()]),
        down_t=mlp.down_proj.weight.detach().t().contiguous(),
    )


def _rotary_tables(model: Any, length: int) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    """Return cosines and signed sines, each ``[length, 1, head size]``.

    Rotating ``[a, b]`` gives ``[a cos - b sin, b cos + a sin]``: with the halves swapped by
    a roll, the sign belongs to the first half of the sines.
    """
    weight = model.model.embed_tokens.weight
    positions = torch.arange(length).unsqueeze(0)
    with torch.inference_mode():
        cos, sin = model.model.rotary_emb(weight.float()[:1, None], positions)
    sin = sin[0].clone()
    sin[:, : sin.shape[-1] // 2] *= -1
    return cos[0].unsqueeze(1).to(weight.dtype), sin.unsqueeze(1).to(weight.dtype)
