"""Can each model be split over its GPUs: heads, KV heads, vocabulary, quantization groups."""

from __future__ import annotations

from collections.abc import Iterator

from specdeploy.core.compat.codes import finding
from specdeploy.core.compat.question import Member, PairQuestion, Side
from specdeploy.core.compat.vocabulary import padded_rows
from specdeploy.core.findings import FactValue, Finding
from specdeploy.core.models import ModelSpec


def check_parallelism(question: PairQuestion) -> Iterator[Finding]:
    """Check every model of the pair at its own tp."""
    for side, member in question.members:
        yield from _heads(side, member)
        yield from _vocabulary(side, member)
        yield from _groups(side, member)


def usable_tp(model: ModelSpec) -> tuple[list[int], list[int]]:
    """Return the tp values without and with copies of KV heads.

    tp must divide the attention heads, and one of tp and KV heads must divide the other.
    """
    heads, kv = model.attention_heads, model.kv_heads
    dividing = [tp for tp in range(1, heads + 1) if heads % tp == 0]
    plain = [tp for tp in dividing if kv % tp == 0]
    copied = [tp for tp in dividing if tp > kv and tp % kv == 0]
    return plain, copied


def _heads(side: Side, member: Member) -> Iterator[Finding]:
    model, tp = member.model, member.tp
    plain, copied = usable_tp(model)
    if tp in plain:
        return
    facts: dict[str, FactValue] = {
        "side": side,
        "tp": tp,
        "attention_heads": model.attention_heads,
        "kv_heads": model.kv_heads,
        "usable_tp": plain,
        "usable_tp_with_copied_kv_heads": copied,
    }
    if tp in copied:
        yield finding(
            "kv-heads-copied",
            f"the {side} has {model.kv_heads} KV heads for {tp} GPUs: they are copied",
            facts=facts,
        )
        return
    hint = f"usable tp: {_listed(plain)}"
    hint += f"; with copied KV heads: {_listed(copied)}" if copied else ""
    remainder = model.attention_heads % tp
    if remainder:
        code = "heads-not-divisible"
        message = f"{model.attention_heads} attention heads mod tp {tp} is {remainder}"
    else:
        code = "kv-heads-not-divisible"
        message = f"neither of {model.kv_heads} KV heads and tp {tp} divides the other"
    yield finding(code, f"{side}: {message}", hint=hint, facts=facts)


def _vocabulary(side: Side, member: Member) -> Iterator[Finding]:
    rows, tp = member.model.vocab_size, member.tp
    padded = padded_rows(rows, tp)
    if padded != rows:
        yield finding(
            "vocabulary-padded-for-tp",
            f"the {side}'s {rows} rows are not divisible by tp {tp} and are padded to {padded}; "
            "ids of the padding must never be sampled, and with another tp on the other side "
            "the logits have different widths",
            side=side,
            rows=rows,
            tp=tp,
            padded_rows=padded,
        )


def _groups(side: Side, member: Member) -> Iterator[Finding]:
    """Check the inputs that tp splits: of the attention's output and of the MLP's down layer."""
    model, tp = member.model, member.tp
    quantization = model.quantization
    if tp == 1 or quantization is None or quantization.group_size is None:
        return
    group = quantization.group_size
    if group <= 0:  # one scale per channel: nothing to split
        return
    widths = {"attention": model.attention_heads * model.head_dim, "mlp": model.intermediate_size}
    for layer, width in widths.items():
        if width is None or (width % tp == 0 and width // tp % group == 0):
            continue
        per_gpu = width / tp
        remainder = per_gpu % group
        yield finding(
            "quantization-group-split",
            f"the {side}'s {layer} width {width} over tp {tp} is {per_gpu:g} per GPU, and "
            f"{per_gpu:g} mod group {group} is {remainder:g}",
            hint=f"use tp 1 for the {side}, or a checkpoint with a smaller group",
            side=side,
            layer=layer,
            width=width,
            tp=tp,
            group_size=group,
            remainder=remainder,
        )


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values)) or "none"
