"""What a layer's token mixer holds and keeps: grouped-query, latent and linear attention."""

from __future__ import annotations

from specdeploy.core.families.facts import ConfigFacts
from specdeploy.core.families.layers import Heads, Layer, gqa, linear
from specdeploy.core.families.style import Style, switched
from specdeploy.core.models import KvWidth
from specdeploy.errors import CheckpointError

# Keys of compressed attention whose cache layout has no published formula here.
_UNKNOWN_CACHE_KEYS = ("compress_ratios", "o_lora_rank", "q_lora_rank", "kv_lora_rank")


_NO_GUESS = "specdeploy does not guess; plan this model with its serving runtime's own figures"


def kv_layout_unknown(architecture: str, *, reason: str, hint: str = _NO_GUESS) -> CheckpointError:
    """Return the error for a cache whose size cannot be worked out."""
    return CheckpointError(
        f"KV layout not known for this architecture: {architecture} ({reason})", hint=hint
    )


def read_heads(facts: ConfigFacts) -> Heads:
    """Return the attention geometry; KV heads default to the heads (multi-head attention)."""
    hidden = facts.whole("hidden_size")
    queries = facts.whole("num_attention_heads")
    keys = facts.whole("num_key_value_heads", default=queries)
    head_dim = facts.optional("head_dim")
    if head_dim is None:
        head_dim = hidden // queries
        if hidden % queries:
            raise CheckpointError(
                f"config.json: hidden_size {hidden} is not a multiple of {queries} heads "
                "and head_dim is absent"
            )
    if queries % keys:
        raise CheckpointError(
            f"config.json: {queries} attention heads cannot share {keys} KV heads evenly"
        )
    return Heads(hidden=hidden, queries=queries, keys=keys, head_dim=head_dim)


def grouped(facts: ConfigFacts, style: Style, *, window: int | None) -> Layer:
    """Return grouped-query attention (MHA and MQA included)."""
    for key in _UNKNOWN_CACHE_KEYS:
        if facts.get(key) is not None:
            raise kv_layout_unknown(style.architectures[0], reason=f"config.json sets {key} for it")
    heads = read_heads(facts)
    return Layer(
        attention=gqa(
            heads,
            qkv_bias=switched(facts, style.qkv_bias),
            o_bias=switched(facts, style.o_bias),
            gate=style.output_gate,
        ),
        other=_qk_norm(heads, facts, style) + (heads.queries if style.sinks else 0),
        kv=KvWidth(kv_heads=heads.keys, values_per_head=2 * heads.head_dim, window=window),
    )


def latent(facts: ConfigFacts, style: Style) -> Layer:
    """Return multi-head latent attention (DeepSeek-V2, section 2.1).

    A token keeps ``kv_lora_rank + qk_rope_head_dim`` numbers, once, whatever the heads.
    """
    rank = facts.optional("kv_lora_rank")
    if rank is None:
        raise kv_layout_unknown(style.architectures[0], reason="no kv_lora_rank")
    hidden, heads = facts.whole("hidden_size"), facts.whole("num_attention_heads")
    rope, nope = facts.whole("qk_rope_head_dim"), facts.whole("qk_nope_head_dim")
    values, q_rank = facts.whole("v_head_dim"), facts.optional("q_lora_rank")
    bias = switched(facts, style.qkv_bias)
    queries = heads * (nope + rope)
    query = (
        linear(hidden, queries)
        if q_rank is None
        else linear(hidden, q_rank, bias=bias) + linear(q_rank, queries)
    )
    key_value = linear(hidden, rank + rope, bias=bias) + linear(rank, heads * (nope + values))
    return Layer(
        attention=query + key_value + linear(heads * values, hidden, bias=bias),
        other=rank + (q_rank or 0),
        kv=KvWidth(kv_heads=1, values_per_head=rank + rope),
    )


def gated_delta(facts: ConfigFacts) -> Layer:
    """Return a gated delta network (Qwen3-Next): no KV cache, a fixed state per sequence.

    The state is the 16-bit convolution window and one 32-bit matrix per value head.
    """
    hidden = facts.whole("hidden_size")
    value_heads = facts.whole("linear_num_value_heads")
    key_dim, value_dim = facts.whole("linear_key_head_dim"), facts.whole("linear_value_head_dim")
    keys, values = key_dim * facts.whole("linear_num_key_heads"), value_dim * value_heads
    kernel, channels = facts.whole("linear_conv_kernel_dim"), 2 * keys + values
    projections = linear(hidden, channels + values + 2 * value_heads) + linear(values, hidden)
    return Layer(
        attention=projections + channels * kernel,
        other=2 * value_heads + value_dim,
        state_bytes=2 * channels * kernel + 4 * value_heads * key_dim * value_dim,
    )


def _qk_norm(heads: Heads, facts: ConfigFacts, style: Style) -> int:
    if not switched(facts, style.qk_norm_switch):
        return 0
    return {
        "none": 0,
        "per_head_dim": 2 * heads.head_dim,
        "full": (heads.queries + heads.keys) * heads.head_dim,
    }[style.qk_norm]
