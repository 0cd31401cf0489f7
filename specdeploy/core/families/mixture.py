"""Mixture-of-experts feed-forward blocks."""

from __future__ import annotations

from dataclasses import dataclass

from specdeploy.core.families.facts import ConfigFacts
from specdeploy.core.families.layers import linear, mlp
from specdeploy.errors import CheckpointError


@dataclass(frozen=True)
class Mixture:
    """Parameters of one sparse layer's feed-forward block.

    Attributes:
        shared: Experts that every token passes.
        experts: Weights of all routed experts.
        idle: Parameters of the routed experts that one token does not use.
        other: Router, gates and expert biases.
    """

    shared: int
    experts: int
    idle: int
    other: int


def routed(
    facts: ConfigFacts,
    *,
    inner: int,
    shared_inner: int = 0,
    router_extra: int = 0,
    biased: bool = False,
) -> Mixture:
    """Count a block of equal gated experts of width ``inner`` and one linear router.

    ``biased`` gives router and experts biases; ``router_extra`` counts further router or
    gate parameters.
    """
    hidden = facts.whole("hidden_size")
    experts = facts.whole("num_experts")
    chosen = facts.whole("num_experts_per_tok", default=None)
    if chosen > experts:
        raise CheckpointError(f"config.json: {chosen} of {experts} experts per token")
    weights = mlp(hidden, inner)
    biases = 2 * inner + hidden if biased else 0
    return Mixture(
        shared=mlp(hidden, shared_inner) if shared_inner else 0,
        experts=experts * weights,
        idle=(experts - chosen) * (weights + biases),
        other=linear(hidden, experts, bias=biased) + router_extra + experts * biases,
    )


def every_layer(facts: ConfigFacts, index: int) -> Mixture:
    """Mixtral, OLMoE, Granite: each layer is sparse and ``intermediate_size`` is an expert's."""
    del index
    return routed(facts, inner=facts.whole("intermediate_size"))


def gpt_oss(facts: ConfigFacts, index: int) -> Mixture:
    """GPT-OSS: as Mixtral, with biases everywhere."""
    del index
    return routed(facts, inner=facts.whole("intermediate_size"), biased=True)


def qwen(facts: ConfigFacts, index: int) -> Mixture | None:
    """Qwen 2 and 3: sparse every ``decoder_sparse_step`` layers; Qwen 2 adds a gated shared one."""
    dense = facts.items("mlp_only_layers") or []
    step = facts.whole("decoder_sparse_step", default=1)
    if index in dense or (index + 1) % step or not facts.optional("num_experts", least=0):
        return None
    shared = facts.optional("shared_expert_intermediate_size", least=0) or 0
    return routed(
        facts,
        inner=facts.whole("moe_intermediate_size"),
        shared_inner=shared,
        router_extra=facts.whole("hidden_size") if shared else 0,
    )


def deepseek(facts: ConfigFacts, index: int, *, balance_bias: bool = False) -> Mixture | None:
    """DeepSeek and GLM-4 MoE: leading dense layers, shared experts.

    ``balance_bias`` counts the router's correction term, one per expert.
    """
    frequency = facts.whole("moe_layer_freq", default=1)
    if index < facts.whole("first_k_dense_replace", default=0, least=0) or index % frequency:
        return None
    if not facts.optional("num_experts", least=0):
        return None
    inner = facts.whole("moe_intermediate_size")
    return routed(
        facts,
        inner=inner,
        shared_inner=inner * (facts.optional("n_shared_experts", least=0) or 0),
        router_extra=facts.whole("num_experts") if balance_bias else 0,
    )


def llama4(facts: ConfigFacts, index: int) -> Mixture | None:
    """Llama 4: sparse every ``interleave_moe_layer_step`` layers, one shared expert."""
    listed = facts.items("moe_layers")
    step = facts.whole("interleave_moe_layer_step", default=1)
    if (index not in listed) if listed is not None else (index + 1) % step:
        return None
    inner = facts.whole("intermediate_size")
    return routed(facts, inner=inner, shared_inner=inner)
