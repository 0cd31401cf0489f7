"""Draft heads: EAGLE, EAGLE-3, Medusa and separate MTP checkpoints.

An embedding (and, for EAGLE-1, an output projection) that the head takes from its target is
not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from specdeploy.core.families.attention import read_heads
from specdeploy.core.families.decoder import FULL, count_decoder, count_layer, count_mtp
from specdeploy.core.families.facts import ConfigFacts
from specdeploy.core.families.layers import Layer, Stack, linear, norm
from specdeploy.core.families.style import Style
from specdeploy.core.models import DraftHeadSpec, HeadKind
from specdeploy.core.tensors import TensorInfo
from specdeploy.errors import CheckpointError

_EAGLE3_STATES = 3


def head_kind(
    facts: ConfigFacts, architecture: str, tensors: list[TensorInfo] | None
) -> HeadKind | None:
    """Tell which kind of draft head a checkpoint is; None for a whole model."""
    word = architecture.lower()
    if "eagle3" in word or facts.get("draft_vocab_size") is not None:
        return "eagle3"
    if "medusa" in word or facts.get("medusa_num_heads") is not None:
        return "medusa"
    if word.endswith(("nextn", "mtp", "mtpmodel")):
        return "mtp"
    if "eagle" in word:
        return "eagle"
    # EAGLE-1 heads were published under their target's architecture.
    return "eagle" if _fusion(tensors or []) else None


def count_head(facts: ConfigFacts, style: Style, kind: HeadKind) -> Stack:
    """Count a draft head's own parameters; ``kind`` is one that ``head_kind`` returns."""
    counters = {"eagle3": _eagle3, "eagle": _eagle, "medusa": _medusa, "mtp": _mtp}
    return counters[kind](facts, style)


def describe_head(
    facts: ConfigFacts, kind: HeadKind, tensors: list[TensorInfo] | None
) -> DraftHeadSpec:
    """Return what ``check`` needs to know about a head."""
    rows = facts.optional("draft_vocab_size")
    if rows is None and kind in {"eagle3", "medusa"}:
        rows = facts.whole("vocab_size")
    spec = DraftHeadSpec(
        kind=kind,
        draft_vocab_size=rows,
        target_hidden_size=facts.whole("target_hidden_size", default=facts.whole("hidden_size"))
        if kind == "eagle3"
        else facts.whole("hidden_size"),
    )
    return spec if tensors is None else _with_tensors(spec, tensors)


def _with_tensors(spec: DraftHeadSpec, tensors: list[TensorInfo]) -> DraftHeadSpec:
    by_end = {tensor.name.rsplit(".", 1)[-1]: tensor for tensor in tensors}
    fusion = _fusion(tensors)
    return spec.evolve(
        has_embedding=any(tensor.is_embedding for tensor in tensors),
        has_lm_head=any(tensor.is_lm_head for tensor in tensors),
        has_draft_to_target_map="d2t" in by_end,
        has_target_to_draft_map="t2d" in by_end,
        fusion_input_size=fusion.shape[-1] if fusion and fusion.shape else None,
    )


def _fusion(tensors: Iterable[TensorInfo]) -> TensorInfo | None:
    """Return the projection that joins target states and embedding."""
    return next((t for t in tensors if t.name.removeprefix("model.") == "fc.weight"), None)


def _eagle3(facts: ConfigFacts, style: Style) -> Stack:
    """EAGLE-3: three target states fused to one, and a layer over it and the embedding."""
    if style.attention != "grouped":
        raise CheckpointError("EAGLE-3 heads with latent attention are not known")
    hidden = facts.whole("hidden_size")
    target = facts.whole("target_hidden_size", default=hidden)
    settings = facts.table("eagle_config") or {}
    listed = settings.get("eagle_aux_hidden_state_layer_ids")
    states = len(listed) if isinstance(listed, list) and listed else _EAGLE3_STATES
    fused = 0 if settings.get("use_aux_hidden_state") is False else states * target
    layers = [
        count_layer(facts, style, index=index, kind=FULL)
        for index in range(facts.whole("num_hidden_layers", default=1))
    ]
    heads = read_heads(facts)
    # The first layer reads embedding and state side by side and norms them apart.
    wider = hidden * (heads.queries + 2 * heads.keys) * heads.head_dim
    first = replace(
        layers[0], attention=layers[0].attention + wider, other=layers[0].other + norm(hidden)
    )
    return Stack(
        embedding=0,
        lm_head=linear(hidden, facts.whole("draft_vocab_size", default=facts.whole("vocab_size"))),
        other=norm(hidden) + linear(fused, hidden),
        layers=[first, *layers[1:]],
    )


def _eagle(facts: ConfigFacts, style: Style) -> Stack:
    """EAGLE-1: one projection with bias and layers, of which the first has one norm less."""
    hidden = facts.whole("hidden_size")
    body = count_decoder(facts, style)
    first = replace(body.layers[0], other=body.layers[0].other - norm(hidden))
    bias = facts.get("bias") is not False
    return Stack(
        embedding=0,
        lm_head=0,
        other=linear(2 * hidden, hidden, bias=bias),
        layers=[first, *body.layers[1:]],
    )


def _medusa(facts: ConfigFacts, style: Style) -> Stack:
    """Medusa: per head residual blocks with bias and an output projection; no attention."""
    del style
    hidden, vocab = facts.whole("hidden_size"), facts.whole("vocab_size")
    heads = facts.whole("medusa_num_heads", default=facts.optional("num_heads"))
    blocks = facts.whole("medusa_num_layers", default=facts.whole("num_hidden_layers", default=1))
    block = Layer(mlp=heads * linear(hidden, hidden, bias=True))
    outputs = heads * linear(hidden, vocab)
    return Stack(embedding=0, lm_head=outputs, other=0, layers=[block] * blocks)


def _mtp(facts: ConfigFacts, style: Style) -> Stack:
    """A multi-token-prediction module on its own."""
    index = facts.whole("num_hidden_layers")
    modules = facts.whole("num_nextn_predict_layers", default=1)
    layer = count_layer(facts, style, index=index, kind=FULL)
    counted = count_mtp(facts.with_values({"num_nextn_predict_layers": modules}), style)
    return Stack(
        embedding=0, lm_head=0, other=counted - modules * layer.parameters, layers=[layer] * modules
    )
