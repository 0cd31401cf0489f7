"""A whole decoder from its config: layers, what stands around them, and their KV widths."""

from __future__ import annotations

from dataclasses import replace

from specdeploy.core.families.attention import gated_delta, grouped, kv_layout_unknown, latent
from specdeploy.core.families.facts import ConfigFacts, shown
from specdeploy.core.families.layers import Layer, Stack, linear, mlp, norm
from specdeploy.core.families.style import Style, switched
from specdeploy.errors import CheckpointError

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
_KINDS = {FULL: FULL, "attention": FULL, SLIDING: SLIDING, LINEAR: LINEAR}


def count_decoder(facts: ConfigFacts, style: Style) -> Stack:
    """Count a decoder-only model of ``style``."""
    hidden, vocab = facts.whole("hidden_size"), facts.whole("vocab_size")
    layers = [
        count_layer(facts.for_layer(index), style, index=index, kind=kind)
        for index, kind in enumerate(layer_kinds(facts, style))
    ]
    positions = 0
    if style.learned_positions is not None:
        positions = facts.whole("max_position_embeddings") + style.learned_positions
    tied = facts.flag("tie_word_embeddings")
    return Stack(
        embedding=(vocab + positions) * hidden,
        lm_head=0 if tied else linear(hidden, vocab, bias=style.head_bias),
        other=norm(hidden, bias=switched(facts, style.norm_bias)) if style.final_norm else 0,
        layers=layers,
        mtp=count_mtp(facts, style),
    )


def count_mtp(facts: ConfigFacts, style: Style) -> int:
    """Count the multi-token-prediction modules without embedding and output projection.

    Each is a projection of two hidden states to one, a full-attention layer and three
    norms (DeepSeek-V3, section 2.2).
    """
    modules = facts.optional(style.mtp_key, least=0) if style.mtp_key else None
    if not modules:
        return 0
    hidden, after = facts.whole("hidden_size"), facts.whole("num_hidden_layers")
    # An MTP layer follows the main ones, so rules on the index see it as a late layer.
    layer = count_layer(facts, style, index=after, kind=FULL)
    return modules * (layer.parameters + linear(2 * hidden, hidden) + 3 * norm(hidden))


def count_layer(facts: ConfigFacts, style: Style, *, index: int, kind: str) -> Layer:
    """Count one decoder layer of the given kind."""
    window = facts.whole("sliding_window") if kind == SLIDING else None
    if kind == LINEAR:
        mixer = gated_delta(facts)
    elif style.attention == "latent":
        mixer = latent(facts, style)
    else:
        mixer = grouped(facts, style, window=window)
    norms = style.norms if isinstance(style.norms, int) else style.norms(facts)
    width = norm(facts.whole("hidden_size"), bias=switched(facts, style.norm_bias))
    return _with_feed_forward(
        replace(mixer, other=mixer.other + norms * width), facts, style, index=index
    )


def layer_kinds(facts: ConfigFacts, style: Style) -> list[str]:
    """Return each layer's kind: from layer_types, else from the family's rule.

    A window no shorter than the context never drops a token and counts as full attention.
    """
    count = facts.whole("num_hidden_layers")
    listed = facts.items("layer_types")
    if listed is None:
        kinds = _rule_kinds(facts, style, count)
    else:
        kinds = _listed_kinds(listed, count, style.architectures[0])
    window = facts.optional("sliding_window", least=0)
    context = facts.whole("max_position_embeddings")
    if not window or window >= context:
        kinds = [FULL if kind == SLIDING else kind for kind in kinds]
    return kinds


def _listed_kinds(listed: list[object], count: int, architecture: str) -> list[str]:
    if len(listed) != count:
        raise CheckpointError(
            f"config.json: layer_types has {len(listed)} entries for {count} layers"
        )
    for name in listed:
        if not isinstance(name, str) or name not in _KINDS:
            raise kv_layout_unknown(architecture, reason=f"layer type {shown(name)}")
    return [_KINDS[str(name)] for name in listed]


def _rule_kinds(facts: ConfigFacts, style: Style, count: int) -> list[str]:
    every = style.linear_every and facts.whole("full_attention_interval", default=4)
    if every:
        return [FULL if (i + 1) % every == 0 else LINEAR for i in range(count)]
    rule = style.window
    if rule == "all":
        return [SLIDING] * count
    if rule == "qwen":
        first = facts.whole("max_window_layers", default=count, least=0)
        first = first if facts.flag("use_sliding_window") else count
        return [SLIDING if i >= first else FULL for i in range(count)]
    if isinstance(rule, int):
        step = facts.whole("sliding_window_pattern", default=rule)
        return [FULL if (i + 1) % step == 0 else SLIDING for i in range(count)]
    return [FULL] * count


def _with_feed_forward(layer: Layer, facts: ConfigFacts, style: Style, *, index: int) -> Layer:
    mixture = style.mixture(facts, index) if style.mixture else None
    if mixture is not None:
        return replace(
            layer,
            mlp=mixture.shared,
            experts=mixture.experts,
            idle=mixture.idle,
            other=layer.other + mixture.other,
        )
    hidden = facts.whole("hidden_size")
    bias = switched(facts, style.mlp_bias)
    return replace(layer, mlp=mlp(hidden, inner_width(facts, style), gated=style.gated, bias=bias))


def inner_width(facts: ConfigFacts, style: Style) -> int:
    """Return the dense feed-forward width."""
    usual = style.inner_factor and style.inner_factor * facts.whole("hidden_size")
    return facts.whole(style.dense_key, default=usual)
