"""How much of a draft the target accepts: by position, by kind of request, with uncertainty.

*Per-position acceptance* is the chance that the next draft token is accepted, given all before
it were. *Acceptance rate* is accepted / drafted tokens; it falls with the draft length by
arithmetic alone and is only ever reported. *Tokens per step* counts the bonus token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from specdeploy.core.config import CategoryMix
from specdeploy.core.record import Document, Record
from specdeploy.errors import ConfigError

CATEGORIES: Final = tuple(CategoryMix.model_fields)
ALL: Final = "all"
LEVEL: Final = 0.9
# Rates fitted to published runs of 2 to 7 drafted tokens differ by 0.06 within one pair.
ASSUMED_HALF_WIDTH: Final = 0.05
_NEAR_ONE: Final = 0.99

Share = Annotated[float, Field(ge=0, le=1)]
CategoryName = Literal["all", "code", "summarization", "conversation", "extraction", "long_answer"]


class AcceptanceInterval(Record):
    """Bounds of the per-position acceptance, position by position."""

    model_config = ConfigDict(allow_inf_nan=False)

    low: list[Share]
    high: list[Share]
    level: float = Field(default=LEVEL, gt=0, lt=1, description="Share of runs that fall inside.")


class CategoryAcceptance(Record):
    """What is known of one kind of request."""

    model_config = ConfigDict(allow_inf_nan=False)

    per_position: list[Share] = Field(
        min_length=1, description="Chance of acceptance at each position, given all before it."
    )
    overlap: Share | None = Field(
        default=None, description="Mean of sum(min(p, q)) over positions, where it was measured."
    )
    tokens_per_step: dict[int, float] = Field(
        default={}, description="As measured, by draft length; the bonus token counts."
    )
    prompts: int | None = Field(default=None, ge=1)
    interval: AcceptanceInterval | None = None

    @model_validator(mode="after")
    def _interval_fits(self) -> Self:
        bounds = self.interval
        if bounds is None:
            return self
        if not len(bounds.low) == len(bounds.high) == len(self.per_position):
            raise ValueError("interval.low and interval.high need one number per position")
        rows = zip(bounds.low, self.per_position, bounds.high, strict=True)
        if any(not low <= middle <= high for low, middle, high in rows):
            raise ValueError("interval.low <= per_position <= interval.high does not hold")
        return self


class AcceptanceProfile(Document):
    """``acceptance.json``: acceptance by kind of request, and where it comes from."""

    categories: dict[CategoryName, CategoryAcceptance] = Field(
        min_length=1, description="`all` stands for every kind that has no entry of its own."
    )
    source: str = Field(default="measured", description="measured, given, or preset and its name.")
    assumptions: list[str] = []


@dataclass(frozen=True, slots=True)
class Curve:
    """Per-position acceptance with bounds; past its end the last position repeats."""

    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    level: float = LEVEL


@dataclass(frozen=True, slots=True)
class MixedCurve:
    """Curves of several kinds of request, and the share of requests of each."""

    parts: Mapping[str, Curve]
    shares: Mapping[str, float]
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """Tokens counted over steps.

    Every step emits what it accepted and one token more: the correction, or the bonus.
    """

    drafted: int
    accepted: int
    steps: int

    @property
    def rate(self) -> float | None:
        """Accepted / drafted; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def emitted(self) -> int:
        """Tokens that the steps gave."""
        return self.accepted + self.steps

    @property
    def tokens_per_step(self) -> float:
        """Emitted tokens per step; what drafts are ranked by."""
        return self.emitted / self.steps if self.steps else 1.0

    @property
    def drafted_per_step(self) -> float:
        """Tokens proposed per step; below the draft length when the draft stops early."""
        return self.drafted / self.steps if self.steps else 0.0

    @property
    def warning(self) -> str | None:
        """What a rate near 1 hides: a draft that hardly proposes anything."""
        if self.rate is None or self.rate < _NEAR_ONE or self.drafted_per_step >= 1:
            return None
        return (
            f"an acceptance rate of {self.rate:.2f} with {self.drafted_per_step:.1f} drafted "
            f"tokens per step is no good draft: {self.tokens_per_step:.2f} tokens per step"
        )


def accepted_prefix(matches: Sequence[bool]) -> int:
    """Return how many drafted tokens stand before the first mismatch."""
    return next((at for at, match in enumerate(matches) if not match), len(matches))


def count_acceptance(steps: Sequence[Sequence[bool]]) -> AcceptanceCounts:
    """Count steps, each given as one flag per drafted token: does the target agree with it?"""
    return AcceptanceCounts(
        drafted=sum(len(step) for step in steps),
        accepted=sum(accepted_prefix(step) for step in steps),
        steps=len(steps),
    )


def given_profile(acceptance: float) -> AcceptanceProfile:
    """Return the profile that one number stands for.

    Raises:
        ConfigError: not a share.
    """
    if not 0 <= acceptance <= 1:
        raise ConfigError(
            f"acceptance {acceptance:g} is not between 0 and 1",
            hint="it is the chance that the next draft token is accepted, such as 0.7",
        )
    return AcceptanceProfile(
        categories={ALL: CategoryAcceptance(per_position=[acceptance])},
        source="given",
        assumptions=[
            f"acceptance {acceptance:g} is taken at every position and for every kind of request"
        ],
    )


def curve_of(category: CategoryAcceptance) -> Curve:
    """Return the curve; without an interval, one of 0.05 to both sides is assumed."""
    middle = tuple(category.per_position)
    bounds = category.interval
    if bounds is not None:
        return Curve(middle, tuple(bounds.low), tuple(bounds.high), bounds.level)
    return Curve(
        middle,
        tuple(max(0.0, a - ASSUMED_HALF_WIDTH) for a in middle),
        tuple(min(1.0, a + ASSUMED_HALF_WIDTH) for a in middle),
    )


def flat_curve(acceptance: float) -> Curve:
    """Return the curve of one acceptance at every position, known exactly."""
    return Curve((acceptance,), (acceptance,), (acceptance,))


def tokens_per_step(per_position: Sequence[float], draft_length: int) -> float:
    """Return the expected tokens of one verify step, the bonus token included.

    ``1 + a1 + a1 a2 + ... + a1...ak``: the sum over positions of the chance that the draft is
    accepted up to there. With equal ``a`` it is Leviathan et al. 2023, equation 1, and unlike
    the closed form it is exact at ``a = 1``.
    """
    return tokens_table(per_position, draft_length)[draft_length]


def tokens_table(per_position: Sequence[float], longest: int) -> list[float]:
    """Return the tokens per step of every draft length from 0 to ``longest``."""
    return list(accumulate(_reached(per_position, longest), initial=1.0))


def mixed_table(mixed: MixedCurve, longest: int) -> list[float]:
    """Return the mean tokens per step of a mix, by draft length from 0 to ``longest``.

    The harmonic mean over requests: answers of one length take steps in proportion to
    ``1 / tokens per step``, and steps are what time is spent on.
    """
    return _harmonic(mixed, {name: part.middle for name, part in mixed.parts.items()}, longest)


def mixed_bounds(mixed: MixedCurve, longest: int) -> tuple[list[float], list[float]]:
    """Return the low and high ends of ``mixed_table``, with all kinds at their ends at once."""
    low = _harmonic(mixed, {name: part.low for name, part in mixed.parts.items()}, longest)
    high = _harmonic(mixed, {name: part.high for name, part in mixed.parts.items()}, longest)
    return low, high


def mix(profile: AcceptanceProfile, weights: CategoryMix) -> MixedCurve:
    """Return the profile weighted as the workload mixes its kinds of request.

    Raises:
        ConfigError: the workload has a kind that the profile knows nothing of.
    """
    asked = {name: weight for name, weight in dict(weights).items() if weight > 0}
    curves = {str(name): curve_of(known) for name, known in profile.categories.items()}
    assumptions = [*profile.assumptions, *_assumed(profile)]
    if not asked:
        asked = dict.fromkeys(curves, 1.0)
        if len(curves) > 1:
            assumptions.append("no mix of requests is given: every measured kind counts the same")
    missing = [name for name in asked if name not in curves and ALL not in curves]
    if missing:
        raise ConfigError(
            f"the workload has {', '.join(missing)}, and the acceptance profile knows only "
            f"{', '.join(curves)}",
            hint="measure that kind of request, or leave it out of workload.categories",
        )
    total = sum(asked.values())
    return MixedCurve(
        parts={name: curves.get(name) or curves[ALL] for name in asked},
        shares={name: weight / total for name, weight in asked.items()},
        assumptions=tuple(assumptions),
    )


def flat_mix(acceptance: float) -> MixedCurve:
    """Return one acceptance for every request and position, known exactly."""
    return MixedCurve({ALL: flat_curve(acceptance)}, {ALL: 1.0})


def shift(mixed: MixedCurve, name: str, acceptance: float) -> MixedCurve:
    """Return the mix with one kind's acceptance replaced by a flat one."""
    return MixedCurve({**mixed.parts, name: flat_curve(acceptance)}, mixed.shares)


def _assumed(profile: AcceptanceProfile) -> Iterator[str]:
    if any(known.interval is None for known in profile.categories.values()):
        yield (
            f"the acceptance has no interval of its own: +/- {ASSUMED_HALF_WIDTH:g} is assumed "
            f"at level {LEVEL:g}"
        )
    if profile.source != "given":
        yield "past the last measured position, acceptance stays what it is there"


def _reached(per_position: Sequence[float], longest: int) -> Iterator[float]:
    """Yield the chance that a draft is accepted up to each position."""
    known = list(per_position[:longest])
    return accumulate([*known, *[per_position[-1]] * (longest - len(known))], mul)


def _harmonic(mixed: MixedCurve, rates: Mapping[str, Sequence[float]], longest: int) -> list[float]:
    tables = {name: tokens_table(rate, longest) for name, rate in rates.items()}
    mean = [
        1 / sum(share / tables[name][length] for name, share in mixed.shares.items())
        for length in range(1, longest + 1)
    ]
    return [1.0, *mean]
