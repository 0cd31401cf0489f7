"""Published acceptance of other pairs, by name. A preset is a guess about yours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from specdeploy.core.acceptance import (
    ALL,
    AcceptanceProfile,
    CategoryAcceptance,
    CategoryName,
    tokens_per_step,
)
from specdeploy.core.nearest import did_you_mean
from specdeploy.errors import ConfigError

PREFIX: Final = "preset:"
_HALVINGS: Final = 50


@dataclass(frozen=True, slots=True)
class Preset:
    """One published measurement.

    Attributes:
        pair: What was measured, for the warning.
        per_position: Acceptance by position, where it was published so.
        rates: Accepted / drafted at ``draft_length``, where only that was published.
    """

    pair: str
    per_position: Mapping[CategoryName, Sequence[float]]
    rates: Mapping[CategoryName, float]
    draft_length: int = 0


PRESETS: Final = {
    "eagle-vicuna-7b": Preset(
        "EAGLE on Vicuna-7B, chat questions, greedy",
        per_position={ALL: (0.79, 0.74, 0.72, 0.73)},
        rates={},
    ),
    "eagle-llama-2-70b": Preset(
        "EAGLE on Llama-2-70B, chat questions, greedy",
        per_position={ALL: (0.75, 0.69, 0.65, 0.64)},
        rates={},
    ),
    "mtp-qwen3.6-35b": Preset(
        "MTP on Qwen3.6-35B-A3B in llama.cpp, accepted / drafted of 4 tokens by kind of request",
        per_position={},
        rates={
            "code": 0.81,
            "summarization": 0.75,
            "extraction": 0.72,
            "conversation": 0.60,
            "long_answer": 0.47,
        },
        draft_length=4,
    ),
}


def preset_profile(name: str) -> AcceptanceProfile:
    """Return a preset's profile, with the warning that it is another pair's.

    Raises:
        ConfigError: there is no such preset.
    """
    if name not in PRESETS:
        raise ConfigError(
            f"there is no acceptance preset {name!r}{did_you_mean(name, PRESETS)}",
            hint=f"known: {', '.join(PRESETS)}",
        )
    preset = PRESETS[name]
    categories: dict[CategoryName, CategoryAcceptance] = {
        kind: CategoryAcceptance(per_position=list(rates))
        for kind, rates in preset.per_position.items()
    }
    for kind, rate in preset.rates.items():
        flat = flat_acceptance(1 + preset.draft_length * rate, preset.draft_length)
        categories[kind] = CategoryAcceptance(per_position=[flat])
    assumptions = [
        f"acceptance is that of another pair ({preset.pair}): measure yours before you rely on it"
    ]
    if preset.rates:
        assumptions.append("acceptance is taken to be the same at every position")
    return AcceptanceProfile(
        categories=categories, source=f"{PREFIX}{name}", assumptions=assumptions
    )


def flat_acceptance(tokens: float, draft_length: int) -> float:
    """Return the acceptance that, the same at every position, gives so many tokens per step.

    Bisection on the increasing ``tokens_per_step``; what no acceptance gives is answered with
    the nearer end of 0..1.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if tokens_per_step([middle], draft_length) < tokens:
            low = middle
        else:
            high = middle
    return high if tokens > 1 else 0.0
