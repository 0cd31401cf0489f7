"""Parameter counts and KV widths of model families, from a config alone."""

from __future__ import annotations

from dataclasses import dataclass

from specdeploy.core.families.decoder import count_decoder
from specdeploy.core.families.facts import ConfigFacts
from specdeploy.core.families.heads import count_head
from specdeploy.core.families.layers import Stack
from specdeploy.core.families.pruned import ARCHITECTURE as PRUNED
from specdeploy.core.families.pruned import count_pruned
from specdeploy.core.families.style import Style
from specdeploy.core.families.table import SAME_AS, STYLES
from specdeploy.core.models import HeadKind


@dataclass(frozen=True)
class Family:
    """A known family, applied to one config."""

    facts: ConfigFacts
    style: Style

    def count(self, head: HeadKind | None) -> Stack:
        """Count the model, or the draft head that it is."""
        if head is not None:
            return count_head(self.facts, self.style, head)
        if self.facts.get("block_configs") is not None:
            return count_pruned(self.facts)
        return count_decoder(self.facts, self.style)


def find_family(
    facts: ConfigFacts, *, architecture: str, nested: bool, head: HeadKind | None
) -> Family | None:
    """Return the family of a config, or None when it is not known.

    A model type counts only with an architecture that it is known under: a derived class of
    the same type may have other parts. Vision wrappers and draft heads bring class names of
    their own.
    """
    model_type = facts.text("model_type") or _type_of(architecture)
    known_type = SAME_AS.get(model_type, model_type)
    if head is not None:
        style = _style_of_head(architecture, known_type, head)
    else:
        style = STYLES.get("deci" if architecture == PRUNED else known_type)
        wrapper = nested or architecture.endswith("ForConditionalGeneration")
        if style and not wrapper and architecture not in ("", *style.architectures):
            return None
    return None if style is None else _apply(style, facts, nested=nested)


def _apply(style: Style, facts: ConfigFacts, *, nested: bool) -> Family:
    sizes = style.nested_absent if nested else {}
    context = {"max_position_embeddings": style.context} if style.context else {}
    known = facts.with_defaults({**sizes, **context, **style.absent})
    if style.adapt is not None:
        known = known.with_values(style.adapt(known))
    return Family(facts=known, style=style)


def _style_of_head(architecture: str, model_type: str, head: HeadKind) -> Style | None:
    """A head's layers are named by its class, else by its type; Medusa has none of its own."""
    for style in STYLES.values():
        if architecture.startswith(style.architectures):
            return style
    plain = head == "medusa" or model_type in {"", "eagle", "eagle3"}
    return STYLES.get("llama" if plain else model_type)


def _type_of(architecture: str) -> str:
    matches = (name for name, style in STYLES.items() if architecture in style.architectures)
    return next(matches, "")
