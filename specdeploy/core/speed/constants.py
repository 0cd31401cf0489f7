"""Every constant of the speed model, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal, cast

from specdeploy.core.speed.fitted import FITTED

Source = Literal["fitted", "physics", "assumed", "calibrated", "measured table"]
_FIT: Final = "measured rows"
_CURVES: Final = "published draft-length curves"


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant: what it means, what it may be, and where its value comes from.

    ``low`` and ``high`` bound every fit and lie about two standard deviations either side of
    ``prior``, what is believed before any point is seen.
    """

    name: str
    meaning: str
    unit: str
    low: float
    prior: float
    high: float
    source: Source
    origin: str

    @property
    def value(self) -> float:
        """The value in use: the fitted one, or else the prior."""
        return FITTED.get(self.name, self.prior)


def _fitted(
    meaning: str, unit: str, bounds: tuple[float, float, float], origin: str = _FIT
) -> float:
    low, prior, high = bounds
    told = {"meaning": meaning, "unit": unit, "low": low, "high": high}
    metadata = {**told, "source": "fitted", "origin": origin}
    # A dataclass reads the field, a type checker the number.
    return field(default=prior, metadata=metadata)


def _assumed(meaning: str, unit: str, value: float, origin: str) -> float:
    told = {"meaning": meaning, "unit": unit, "low": value, "high": value}
    metadata = {**told, "source": "assumed", "origin": origin}
    return field(default=value, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Constants:
    """Values of every constant; made without arguments, the priors.

    ``calibrated`` names those that a user's own points moved, ``spread`` holds the ends of the
    intervals that these points gave, by number; None: those of fitted.py.
    """

    read_efficiency: float = _fitted("share of peak bandwidth, weights", "1", (0.5, 0.75, 1))
    blackwell_read_efficiency: float = _fitted("the same from SM 100 on", "1", (0.5, 0.75, 1))
    fp4_read_efficiency: float = _fitted("reading 4-bit weights, beside others", "1", (0.6, 0.9, 1))
    cache_efficiency: float = _fitted("share of peak bandwidth, KV cache", "1", (0.4, 0.7, 1))
    expert_efficiency: float = _fitted(
        "share of peak bandwidth, routed experts", "1", (0.1, 0.5, 1)
    )
    half_efficiency: float = _fitted("share of the 16-bit peak, prefill", "1", (0.3, 0.6, 0.9))
    fp8_efficiency: float = _fitted("share of the 8-bit peak, prefill", "1", (0.2, 0.5, 0.8))
    fp4_efficiency: float = _fitted("share of the 4-bit peak, prefill", "1", (0.1, 0.35, 0.7))
    expert_products: float = _fitted(
        "rate of the experts' products, beside dense ones", "1", (0.1, 0.7, 1)
    )
    activation_passes: float = _fitted("times that a layer moves its activations", "1", (0, 10, 40))
    layer_s: float = _fitted("launch floor of a layer", "s", (5e-6, 2.5e-5, 6e-5))
    expert_layer_s: float = _fitted("routing, per layer with experts", "s", (0, 2e-5, 1e-4))
    latent_layer_s: float = _fitted(
        "latent attention's extra kernels, per layer", "s", (0, 2e-5, 8e-5)
    )
    all_reduce_s: float = _fitted("latency of an all-reduce, NVLink", "s", (2e-6, 8e-6, 2e-5))
    second_shot_s: float = _fitted("latency of its second half", "s", (0, 5e-6, 2e-5))
    link_efficiency: float = _fitted("share of the link's one-way peak", "1", (0.2, 0.5, 1))
    step_s: float = _fitted("scheduler, per step", "s", (0, 3e-4, 1e-3))
    request_s: float = _fitted("host, per request and step", "s", (0, 5e-5, 1.5e-4))
    prompt_s: float = _fitted("host, per request", "s", (0, 5e-3, 2e-2))
    first_token_s: float = _fitted("client and server, per first token", "s", (0, 2e-2, 1e-1))
    interference: float = _fitted("share of a prefill that holds up decoding", "1", (0.6, 1.0, 1.4))
    queue_base: float = _fitted(
        "prefills that a prompt waits for where lengths are equal", "1", (0, 1.5, 4)
    )
    queue_slope: float = _fitted(
        "prefills that it waits for, per other request", "1", (0, 0.1, 0.3)
    )
    backlog: float = _fitted(
        "share of the host's backlog that shows in first tokens", "1", (0, 0.5, 1)
    )
    pcie_gb_s: float = _assumed("both directions of PCIe", "GB/s", 64, "PCIe 4.0 x16")
    pcie_s: float = _assumed("latency of an all-reduce, PCIe", "s", 3e-5, "not measured")
    sampling_s: float = _assumed("choosing one token", "s", 5e-7, "not measured")
    max_num_tokens: float = _assumed("tokens of one pass", "1", 8192, "TensorRT-LLM's default")
    draft_step_s: float = _fitted(
        "launch and sampling of a draft step", "s", (5e-5, 3e-4, 1e-3), _CURVES
    )
    speculation_s: float = _fitted("acceptance and rewind, per step", "s", (0, 5e-4, 2e-3), _CURVES)
    ngram_s: float = _assumed(
        "prompt lookup, per request and step",
        "s",
        2.5e-5,
        "TensorRT-LLM's n-gram study: under 15 % of a step, here at 32 requests",
    )
    ngram_match: float = _assumed(
        "share of steps in which prompt lookup finds a draft",
        "1",
        0.65,
        "TensorRT-LLM's n-gram study: about a third of the steps accept nothing",
    )
    tree_width: float = _assumed(
        "positions verified per draft token of a tree",
        "1",
        16,
        "TensorRT-LLM's Medusa example: 63 nodes for 4 heads; ReDrafter has fewer",
    )
    round_trip_s: float = _assumed("two calls from a BLS model", "s", 1.5e-3, "not measured")
    calibrated: frozenset[str] = frozenset()
    spread: Mapping[str, tuple[float, float]] | None = None

    def values(self) -> dict[str, float]:
        """Return every constant by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.metadata}

    def moved(self, values: Mapping[str, float]) -> Constants:
        """Return these constants with some values replaced."""
        every = {**self.values(), **values}
        return Constants(**every, calibrated=self.calibrated, spread=self.spread)

    def source(self, name: str) -> Source:
        """Return where the value of a constant comes from."""
        return "calibrated" if name in self.calibrated else BY_NAME[name].source


TABLE: Final = tuple(
    Constant(name=each.name, prior=cast("float", each.default), **each.metadata)
    for each in fields(Constants)
    if each.metadata
)
BY_NAME: Final[Mapping[str, Constant]] = {constant.name: constant for constant in TABLE}
DEFAULT: Final = Constants().moved(FITTED)
