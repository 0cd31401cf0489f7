"""Every constant of the speed model, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal

from typing_extensions import Self

from specdeploy.core.speed.fitted import FITTED

Source = Literal["fitted", "physics", "assumed", "calibrated"]
_FIT: Final = "least squares on the measured rows of scripts/fit_data (scripts/fit_constants)"
_CURVES: Final = "the draft-length curves of scripts/fit_data/published_numbers.json"


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant: what it means, what it may be, and where its value comes from.

    ``low`` and ``high`` bound every fit; ``prior`` is where a fit starts and what it is drawn
    to; ``value`` is what is used.
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


def _fitted(name: str, meaning: str, unit: str, bounds: tuple[float, float, float]) -> Constant:
    low, prior, high = bounds
    return Constant(name, meaning, unit, low, prior, high, "fitted", _FIT)


def _stated(name: str, meaning: str, unit: str, value: float, origin: str) -> Constant:
    return Constant(name, meaning, unit, value, value, value, "assumed", origin)


TABLE: Final = (
    _fitted("read_efficiency", "share of peak bandwidth, weights", "1", (0.4, 0.75, 1.0)),
    _fitted("cache_efficiency", "share of peak bandwidth, KV cache", "1", (0.3, 0.7, 1.0)),
    _fitted("expert_efficiency", "share of peak bandwidth, routed experts", "1", (0.1, 0.5, 1.0)),
    _fitted("half_efficiency", "share of the 16-bit peak, large products", "1", (0.2, 0.6, 1.0)),
    _fitted("fp8_efficiency", "share of the 8-bit peak, large products", "1", (0.15, 0.5, 1.0)),
    _fitted("fp4_efficiency", "share of the 4-bit peak, large products", "1", (0.1, 0.35, 1.0)),
    _fitted("layer_s", "launch floor of one layer", "s", (2e-6, 2e-5, 1e-4)),
    _fitted(
        "expert_layer_s", "routing of one expert layer, beside the floor", "s", (0, 2e-5, 2e-4)
    ),
    _fitted("all_reduce_s", "latency of one all-reduce inside NVLink", "s", (1e-6, 8e-6, 4e-5)),
    _fitted("link_efficiency", "share of the link's one-way peak", "1", (0.1, 0.5, 1.0)),
    _fitted("step_s", "scheduler, once a step", "s", (0, 3e-4, 3e-3)),
    _fitted("request_s", "scheduler and detokenizer, per request and step", "s", (0, 2e-5, 2e-4)),
    _fitted("prompt_s", "tokenizer and admission, per request", "s", (0, 2e-3, 4e-2)),
    _fitted("first_token_s", "client and server path of a first token", "s", (0, 1e-2, 2e-1)),
    _fitted("interference", "share of a prefill that holds up decoding", "1", (0.3, 0.9, 1.5)),
    _fitted("queue_base", "prefills that a prompt waits for at any load", "1", (0, 0.5, 4)),
    _fitted(
        "queue_slope", "prefills that a prompt waits for, per other request", "1", (0, 0.1, 0.5)
    ),
    _fitted("backlog", "share of a host backlog that shows in the first token", "1", (0, 0.5, 1)),
    _stated("pcie_gb_s", "both directions of a PCIe 4.0 x16 link", "GB/s", 64, "PCIe 4.0"),
    _stated("pcie_s", "latency of one all-reduce over PCIe", "s", 3e-5, "assumed"),
    _stated("sampling_s", "top-k over one row of 128 000 logits, batched", "s", 5e-7, "assumed"),
    _stated("max_num_tokens", "tokens of one forward pass", "tokens", 8192, "TensorRT-LLM default"),
    _stated("draft_step_s", "launch and sampling of one draft step", "s", 3e-4, _CURVES),
    _stated("speculation_s", "acceptance and rewind, once a step", "s", 5e-4, _CURVES),
    _stated("head_efficiency", "share of peak bandwidth, draft models", "1", 0.5, _CURVES),
    _stated("ngram_s", "prompt lookup, per request and step", "s", 5e-5, "assumed"),
    _stated("tree_width", "positions verified per draft token of a tree method", "1", 4, "assumed"),
    _stated("round_trip_s", "two calls from a Triton BLS model", "s", 1.5e-3, "assumed"),
)
BY_NAME: Final[Mapping[str, Constant]] = {constant.name: constant for constant in TABLE}


def _of(name: str) -> float:
    return BY_NAME[name].value


@dataclass(frozen=True, slots=True)
class Constants:
    """Values of the table, by name. ``calibrated`` names those that the user's points moved."""

    read_efficiency: float = _of("read_efficiency")
    cache_efficiency: float = _of("cache_efficiency")
    expert_efficiency: float = _of("expert_efficiency")
    half_efficiency: float = _of("half_efficiency")
    fp8_efficiency: float = _of("fp8_efficiency")
    fp4_efficiency: float = _of("fp4_efficiency")
    layer_s: float = _of("layer_s")
    expert_layer_s: float = _of("expert_layer_s")
    all_reduce_s: float = _of("all_reduce_s")
    link_efficiency: float = _of("link_efficiency")
    step_s: float = _of("step_s")
    request_s: float = _of("request_s")
    prompt_s: float = _of("prompt_s")
    first_token_s: float = _of("first_token_s")
    interference: float = _of("interference")
    queue_base: float = _of("queue_base")
    queue_slope: float = _of("queue_slope")
    backlog: float = _of("backlog")
    pcie_gb_s: float = _of("pcie_gb_s")
    pcie_s: float = _of("pcie_s")
    sampling_s: float = _of("sampling_s")
    max_num_tokens: float = _of("max_num_tokens")
    draft_step_s: float = _of("draft_step_s")
    speculation_s: float = _of("speculation_s")
    head_efficiency: float = _of("head_efficiency")
    ngram_s: float = _of("ngram_s")
    tree_width: float = _of("tree_width")
    round_trip_s: float = _of("round_trip_s")
    calibrated: frozenset[str] = field(default=frozenset())

    @classmethod
    def from_values(cls, values: Mapping[str, float], *, calibrated: frozenset[str]) -> Self:
        """Return the table's values with some replaced."""
        return cls(**values, calibrated=calibrated)

    def values(self) -> dict[str, float]:
        """Return every constant by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "calibrated"}

    def source(self, name: str) -> Source:
        """Return where the value of a constant comes from."""
        return "calibrated" if name in self.calibrated else BY_NAME[name].source


DEFAULT: Final = Constants()
