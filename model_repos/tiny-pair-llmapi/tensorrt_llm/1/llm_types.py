"""What goes into and comes out of the reference engine, named as in ``tensorrt_llm``.

Only the fields that the Triton model uses. A setting that the reference engine cannot honour
is refused by name instead of being ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import sampling


@dataclass(frozen=True)
class SamplingParams:
    """One request's wishes; None means TensorRT-LLM's own default.

    With neither ``temperature`` nor ``top_k`` nor ``top_p`` the answer is greedy, as there.

    Attributes:
        max_tokens: Most tokens of the answer.
        end_id: Ends the answer in place of the checkpoint's end ids; -1 for no end id.
        stop: A word, or several, before which the text ends.
        top_k: 0 keeps every token.
        seed: 64 bits, unsigned.
    """

    max_tokens: int = 32
    end_id: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    n: int = 1
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    exclude_input_from_output: bool = True
    return_perf_metrics: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if self.n != 1 or self.best_of not in {None, 1}:
            raise ValueError("best_of above 1 is not supported by the reference engine")
        for name in ("presence_penalty", "frequency_penalty"):
            if getattr(self, name):
                raise ValueError(f"{name} is not supported by the reference engine")
        self.choices()

    @property
    def stop_words(self) -> tuple[str, ...]:
        """The stop words as a tuple."""
        words = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(words)

    def choices(self) -> sampling.SamplingParams:
        """Return how tokens are chosen; refuses values out of range."""
        given = (self.temperature, self.top_k, self.top_p)
        greedy = all(value is None for value in given) or self.top_p == 0
        default = 0.0 if greedy else 1.0
        return sampling.SamplingParams(
            temperature=default if self.temperature is None or greedy else self.temperature,
            top_k=self.top_k or 0,
            top_p=self.top_p or 1.0,
            seed=self.seed or 0,
        )


@dataclass
class SpeculativeDecodingMetrics:
    """Totals of one request; ``steps`` is ours (target passes, the first one included)."""

    total_draft_tokens: int = 0
    total_accepted_draft_tokens: int = 0
    steps: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted tokens; 0 when nothing was drafted."""
        return self.total_accepted_draft_tokens / max(self.total_draft_tokens, 1)


@dataclass
class TimingMetrics:
    """Monotonic times of one request."""

    arrival_time: timedelta = timedelta()
    first_scheduled_time: timedelta = timedelta()
    first_token_time: timedelta = timedelta()
    last_token_time: timedelta = timedelta()


@dataclass
class RequestPerfMetrics:
    """Measured while the request runs."""

    speculative_decoding: SpeculativeDecodingMetrics = field(
        default_factory=SpeculativeDecodingMetrics
    )
    timing_metrics: TimingMetrics = field(default_factory=TimingMetrics)


@dataclass
class CompletionOutput:
    """The answer so far.

    Attributes:
        text: Text that is certain; never contains a stop word.
        token_ids: Every token of the answer, the one that ended it included.
        finish_reason: None while the answer goes on.
        stop_reason: The stop word or end id that ended it.
    """

    index: int = 0
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    request_perf_metrics: RequestPerfMetrics = field(default_factory=RequestPerfMetrics)
    _seen: int = 0

    @property
    def length(self) -> int:
        """How many tokens the answer has."""
        return len(self.token_ids)

    @property
    def text_diff(self) -> str:
        """Text that is new since the output before this one."""
        return self.text[self._seen :]

    def append(self, text: str) -> None:
        """Add text; what was there counts as seen."""
        self._seen = len(self.text)
        self.text += text
