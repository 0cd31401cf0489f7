"""Models pruned layer by layer, whose config lists every block (Nemotron NAS, DeciLM)."""

from __future__ import annotations

from collections.abc import Mapping

from specdeploy.core.families.facts import ConfigFacts, as_number, as_table, bounded
from specdeploy.core.families.layers import Heads, Layer, Stack, gqa, linear, mlp, norm
from specdeploy.core.models import KvWidth
from specdeploy.errors import CheckpointError

ARCHITECTURE = "DeciLMForCausalLM"
_MULTIPLE = 256
_LARGEST_MULTIPLIER = 1000


def count_pruned(facts: ConfigFacts) -> Stack:
    """Count a model with ``block_configs``."""
    hidden, vocab = facts.whole("hidden_size"), facts.whole("vocab_size")
    blocks = facts.items("block_configs") or []
    count = facts.whole("num_hidden_layers")
    if len(blocks) != count:
        raise CheckpointError(
            f"config.json: block_configs has {len(blocks)} entries for {count} layers"
        )
    return Stack(
        embedding=vocab * hidden,
        lm_head=0 if facts.flag("tie_word_embeddings") else linear(hidden, vocab),
        other=norm(hidden),
        layers=[_block(facts, as_table(block, key="block_configs") or {}) for block in blocks],
    )


def _block(facts: ConfigFacts, block: Mapping[str, object]) -> Layer:
    hidden = facts.whole("hidden_size")
    attention, kv, kept_attention = _attention(facts, _part(block, "attention"))
    feed_forward, kept_feed_forward = _feed_forward(facts, _part(block, "ffn"))
    return Layer(
        attention=attention,
        mlp=feed_forward,
        other=norm(hidden) * (kept_attention + kept_feed_forward),
        kv=kv,
    )


def _attention(facts: ConfigFacts, part: Mapping[str, object]) -> tuple[int, KvWidth | None, bool]:
    """Return parameters, KV width and whether the block (with its norm) is there."""
    hidden = facts.whole("hidden_size")
    if part.get("no_op") is True:
        return 0, None, False
    if part.get("replace_with_linear") is True:
        return linear(hidden, hidden), None, True
    queries = facts.whole("num_attention_heads")
    group = bounded(part.get("n_heads_in_group"), key="n_heads_in_group")
    if queries % group:
        raise CheckpointError(f"config.json: {queries} heads do not form groups of {group}")
    head_dim = facts.whole("head_dim", default=hidden // queries)
    keys = queries // group
    heads = Heads(hidden=hidden, queries=queries, keys=keys, head_dim=head_dim)
    window = part.get("window_length")
    width = KvWidth(
        kv_heads=keys,
        values_per_head=2 * head_dim,
        window=None if window is None else bounded(window, key="sliding_window"),
    )
    bias = facts.flag("attention_bias")
    return gqa(heads, qkv_bias=bias, o_bias=bias), width, True


def _feed_forward(facts: ConfigFacts, part: Mapping[str, object]) -> tuple[int, bool]:
    hidden = facts.whole("hidden_size")
    if part.get("no_op") is True:
        return 0, False
    if part.get("replace_with_linear") is True:
        return linear(hidden, hidden), True
    if part.get("intermediate_size") is not None:
        inner = bounded(part["intermediate_size"], key="intermediate_size")
    else:
        multiplier = as_number(part.get("ffn_mult"), key="ffn_mult", most=_LARGEST_MULTIPLIER)
        inner = _width(multiplier, hidden)
    return mlp(hidden, inner, bias=facts.flag("mlp_bias")), True


def _width(multiplier: float, hidden: int) -> int:
    """Two thirds of ``multiplier * hidden`` gated units, rounded up to a multiple of 256."""
    inner = int(2 * multiplier * hidden / 3)
    return bounded(-(-inner // _MULTIPLE) * _MULTIPLE, key="intermediate_size")


def _part(block: Mapping[str, object], key: str) -> Mapping[str, object]:
    part = as_table(block.get(key), key=key)
    if part is None:
        raise CheckpointError(f"config.json: a block of block_configs has no {key}")
    return part
