"""What makes one decoder family differ from another, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from specdeploy.core.families.facts import ConfigFacts
from specdeploy.core.families.mixture import Mixture

# True, False, or the key of config.json that decides.
Switch = bool | str

Attention = Literal["grouped", "latent"]
# Width of the norms on queries and keys: one shared by the heads, or one weight per channel.
QkNorm = Literal["none", "per_head_dim", "full"]

# Which layers keep a window when config.json has no layer_types.
#   none: no layer; all: every layer; qwen: from max_window_layers on, when switched on;
#   a number n: all but every n-th layer.
WindowRule = Literal["none", "all", "qwen"] | int


@dataclass(frozen=True)
class Style:
    """One family's decoder. The defaults describe Llama.

    Attributes:
        context: Positions of a config that does not say.
        norms: Norms of hidden width per layer, or a rule.
        absent: Values of keys that a config of this family may leave out.
        nested_absent: The same for sizes, which only a nested text_config leaves out.
        inner_factor: Feed-forward width in hidden sizes when the config does not say.
        mtp_key: The key that counts multi-token-prediction modules.
        mixture: Returns a layer's experts, or None for a dense layer.
        adapt: Returns values under the usual names that this family spells otherwise.
    """

    architectures: tuple[str, ...]
    context: int | None = None
    attention: Attention = "grouped"
    qkv_bias: Switch = "attention_bias"
    o_bias: Switch = "attention_bias"
    mlp_bias: Switch = "mlp_bias"
    norm_bias: Switch = False
    head_bias: bool = False
    gated: bool = True
    output_gate: bool = False
    sinks: bool = False
    qk_norm: QkNorm = "none"
    qk_norm_switch: Switch = True
    norms: int | Callable[[ConfigFacts], int] = 2
    final_norm: bool = True
    learned_positions: int | None = None
    inner_factor: int | None = None
    dense_key: str = "intermediate_size"
    window: WindowRule = "none"
    linear_every: int | None = None
    mtp_key: str | None = None
    absent: Mapping[str, object] = field(default_factory=dict)
    nested_absent: Mapping[str, object] = field(default_factory=dict)
    mixture: Callable[[ConfigFacts, int], Mixture | None] | None = None
    adapt: Callable[[ConfigFacts], Mapping[str, object]] | None = None


def switched(facts: ConfigFacts, switch: Switch) -> bool:
    """Resolve a switch against a config."""
    return facts.flag(switch) if isinstance(switch, str) else switch
