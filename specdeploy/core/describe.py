"""From the raw contents of a checkpoint to the facts that planning needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from specdeploy.core.checkpoint import CheckpointContents, TokenizerSizes
from specdeploy.core.families import Family, find_family
from specdeploy.core.families.attention import kv_layout_unknown, read_heads
from specdeploy.core.families.common import DTYPE_BYTES, read_dtype, read_rope, read_special_ids
from specdeploy.core.families.decoder import inner_width
from specdeploy.core.families.facts import ConfigFacts, as_table, as_word
from specdeploy.core.families.heads import describe_head, head_kind
from specdeploy.core.families.layers import Heads, Stack
from specdeploy.core.models import (
    HeadKind,
    KvLayers,
    KvWidth,
    ModelSpec,
    ParameterBreakdown,
    VocabularySpec,
)
from specdeploy.core.quantization import describe_quantization, served_bytes
from specdeploy.core.reconcile import reconcile
from specdeploy.core.unknown import count_unknown, family_unknown
from specdeploy.errors import CheckpointError

_LANGUAGE_PARTS = ("text_config", "language_config", "llm_config", "transformer_layer_config")
_HEAD_KEYS = ("draft_vocab_size", "target_hidden_size", "eagle_config")
_QUANTIZATION_KEYS = ("quantization_config", "compression_config")
_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
_VISION_PARTS = ("vision_config", "audio_config", "visual")


def describe_checkpoint(contents: CheckpointContents) -> ModelSpec:
    """Return the facts of a checkpoint.

    Raises:
        CheckpointError: the config is broken, the family is not known, or the weight files
            do not belong to the config.
    """
    facts, nested = language_facts(contents.config)
    architecture = read_architecture(contents.config, facts)
    head = head_kind(facts, architecture, contents.tensors)
    family = find_family(facts, architecture=architecture, nested=nested, head=head)
    subject = _Subject(contents, facts=family.facts if family else facts, architecture=architecture)
    if family is None:
        return reconcile(_from_tensors(subject, head), contents)
    return reconcile(_from_family(subject, family, head), contents)


def language_facts(config: Mapping[str, object]) -> tuple[ConfigFacts, bool]:
    """Return the language model's part of a config, and whether it was nested.

    A vision model may nest its language part or keep it at the top; both are published.
    """
    for key in _LANGUAGE_PARTS:
        part = as_table(config.get(key), key=key)
        if part:
            outside = {k: v for k, v in config.items() if k in _HEAD_KEYS}
            return ConfigFacts({**part, **outside}, outer=config), True
    return ConfigFacts(config), False


def read_architecture(config: Mapping[str, object], facts: ConfigFacts) -> str:
    """Return the class name that the checkpoint is made for, or an empty text."""
    names = config.get("architectures")
    if names is None:
        names = facts.get("architectures")
    if names is None:
        return ""
    if not isinstance(names, list) or not names:
        raise CheckpointError("config.json: architectures should be a list of names")
    return as_word(names[0], key="architectures")


def describe_vocabulary(rows: int, tokenizer: TokenizerSizes | None) -> VocabularySpec:
    """Return vocabulary sizes; the tokenizer's are its base plus the tokens added to it."""
    if tokenizer is None:
        return VocabularySpec(config_rows=rows)
    return VocabularySpec(
        config_rows=rows,
        tokenizer_base=tokenizer.base,
        tokenizer_added=tokenizer.added,
        tokenizer_size=tokenizer.base + tokenizer.added,
        highest_id=tokenizer.highest_id,
        unused_rows=rows - tokenizer.highest_id - 1,
    )


@dataclass(frozen=True)
class _Subject:
    contents: CheckpointContents
    facts: ConfigFacts
    architecture: str


def _from_family(subject: _Subject, family: Family, head: HeadKind | None) -> ModelSpec:
    facts, tensors = subject.facts, subject.contents.tensors
    stack = family.count(head)
    heads = _heads(facts, stack)
    parts = break_down(stack)
    idle = sum(layer.idle for layer in stack.layers)
    return _common(subject, parts, layers=len(stack.layers)).evolve(
        architecture=subject.architecture or family.style.architectures[0],
        attention_heads=heads.queries,
        kv_heads=heads.keys,
        head_dim=heads.head_dim,
        intermediate_size=_intermediate(family),
        active_parameters=parts.total - idle,
        mtp_parameters=stack.mtp,
        kv_layers=group_layers([layer.kv for layer in stack.layers]),
        state_bytes_per_sequence=sum(layer.state_bytes for layer in stack.layers),
        head=head and describe_head(facts, head, tensors),
    )


def _from_tensors(subject: _Subject, head: HeadKind | None) -> ModelSpec:
    facts, architecture = subject.facts, subject.architecture
    if head is not None:
        raise family_unknown(architecture, facts.text("model_type"))
    parts, widths = count_unknown(subject.contents, facts, architecture=architecture)
    kept = [width for width in widths if width is not None]
    if not kept:
        raise kv_layout_unknown(architecture, reason="no layer keeps keys and values")
    widest = max(kept, key=lambda width: width.kv_heads)
    note = f"{architecture} is not a known family: sizes are from the tensor headers"
    spec = _common(subject, parts, layers=len(widths))
    return spec.evolve(
        kv_heads=widest.kv_heads,
        head_dim=widest.values_per_head // 2,
        intermediate_size=facts.optional("intermediate_size"),
        kv_layers=group_layers(widths),
        known_family=False,
        tie_word_embeddings=parts.lm_head == 0,
        notes=[*spec.notes, note],
    )


def _common(subject: _Subject, parts: ParameterBreakdown, *, layers: int) -> ModelSpec:
    """Return what every family states alike."""
    contents, facts = subject.contents, subject.facts
    dtype, note = read_dtype(facts, _stored_types(contents))
    quantization = describe_quantization(
        _declared_quantization(contents.config, facts), contents.quantization
    )
    rows = facts.whole("vocab_size")
    return ModelSpec(
        name=contents.name,
        architecture=subject.architecture,
        model_type=facts.text("model_type") or "",
        hidden_size=facts.whole("hidden_size"),
        layers=layers,
        attention_heads=facts.whole("num_attention_heads", default=0, least=0),
        kv_heads=0,
        head_dim=0,
        vocab_size=rows,
        context_length=_context(facts),
        dtype=dtype,
        tie_word_embeddings=facts.flag("tie_word_embeddings"),
        parameters=parts.total,
        weight_bytes=served_bytes(parts, dtype_bytes=DTYPE_BYTES[dtype], quantization=quantization),
        breakdown=parts,
        vocabulary=describe_vocabulary(rows, contents.tokenizer),
        rope=read_rope(facts),
        special_ids=read_special_ids(facts, contents.generation),
        quantization=quantization,
        multimodal=is_multimodal(contents.config),
        notes=_notes(facts, note, multimodal=is_multimodal(contents.config)),
    )


def _context(facts: ConfigFacts) -> int:
    """Return the declared positions; Medusa heads have none and no limit (0)."""
    medusa = facts.get("medusa_num_heads") is not None
    return facts.whole("max_position_embeddings", default=0 if medusa else None, least=1)


def _notes(facts: ConfigFacts, dtype_note: str | None, *, multimodal: bool) -> list[str]:
    assumed = [f"{key} {facts.get(key)}" for key in _SIZES if facts.is_default(key)]
    notes = [dtype_note] if dtype_note else []
    if assumed:
        notes.append(f"absent from config.json, the family's default taken: {', '.join(assumed)}")
    if multimodal:
        notes.append("only the language part is counted")
    return notes


def _declared_quantization(
    config: Mapping[str, object], facts: ConfigFacts
) -> Mapping[str, object] | None:
    for key in _QUANTIZATION_KEYS:
        table = as_table(config.get(key), key=key) or facts.table(key)
        if table:
            return table
    return None


def is_multimodal(config: Mapping[str, object]) -> bool:
    """Tell whether the checkpoint takes images or audio beside text."""
    return any(config.get(key) is not None for key in _VISION_PARTS)


def break_down(stack: Stack) -> ParameterBreakdown:
    """Add the layers of a stack up, by role."""
    layers = stack.layers
    return ParameterBreakdown(
        embedding=stack.embedding,
        lm_head=stack.lm_head,
        attention=sum(layer.attention for layer in layers),
        mlp=sum(layer.mlp for layer in layers),
        experts=sum(layer.experts for layer in layers),
        other=stack.other + sum(layer.other for layer in layers),
    )


def group_layers(widths: list[KvWidth | None]) -> list[KvLayers]:
    """Count layers of equal KV width; layers without a cache are left out."""
    counts = Counter(width.model_dump_json() for width in widths if width is not None)
    return [
        KvLayers(layers=count, width=KvWidth.model_validate_json(width))
        for width, count in counts.items()
    ]


def _stored_types(contents: CheckpointContents) -> dict[str, int]:
    types: Counter[str] = Counter()
    for tensor in contents.tensors or []:
        types[tensor.dtype] += tensor.size_bytes
    return types


def _heads(facts: ConfigFacts, stack: Stack) -> Heads:
    """Return the geometry of the layer with the most KV heads; zeros without any cache."""
    widths = {index: layer.kv for index, layer in enumerate(stack.layers) if layer.kv}
    if not widths:
        return Heads(hidden=facts.whole("hidden_size"), queries=0, keys=0, head_dim=0)
    if facts.get("kv_lora_rank") is not None:
        return Heads(
            hidden=facts.whole("hidden_size"),
            queries=facts.whole("num_attention_heads"),
            keys=facts.whole("num_key_value_heads", default=1),
            head_dim=facts.whole("qk_nope_head_dim") + facts.whole("qk_rope_head_dim"),
        )
    widest = max(widths, key=lambda index: widths[index].kv_heads)
    keys = {"num_key_value_heads": widths[widest].kv_heads}
    return read_heads(facts.for_layer(widest).with_values(keys))


def _intermediate(family: Family) -> int | None:
    facts = family.facts.for_layer(0)
    if facts.get("intermediate_size") is None and family.style.inner_factor is None:
        return None
    return inner_width(facts, family.style)
