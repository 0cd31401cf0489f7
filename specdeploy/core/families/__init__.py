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
    style = STYLES.get(SAME_AS.get(model_type, model_type))
    if style is None and architecture == PRUNED:
        style = STYLES["deci"]
    if style is None and head is not None:
        style = STYLES["llama"]
    if style is None:
        return None
    wrapper = architecture.endswith("ForConditionalGeneration")
    own = not architecture or architecture in style.architectures
    if not (own or head is not None or wrapper):
        return None
    known = facts.with_defaults({**style.absent, **(style.nested_absent if nested else {})})
    if style.adapt is not None:
        known = known.with_values(style.adapt(known))
    return Family(facts=known, style=style)


def _type_of(architecture: str) -> str:
    matches = (name for name, style in STYLES.items() if architecture in style.architectures)
    return next(matches, "")
