"""One generation: what is asked, what comes back, and when."""

from __future__ import annotations

from pydantic import ConfigDict, Field
from typing_extensions import Self

from specdeploy.core.record import Document, Record


class GenerationOptions(Record):
    """How to generate; None leaves the choice to the server."""

    model_config = ConfigDict(allow_inf_nan=False)

    max_tokens: int = Field(default=64, ge=1)
    draft_length: int | None = Field(
        default=None, ge=0, description="Tokens drafted per step; 0 switches speculation off."
    )
    temperature: float | None = Field(default=None, ge=0.0, description="0 is greedy.")
    top_k: int | None = Field(default=None, ge=0, description="0 keeps every token.")
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: int | None = Field(default=None, ge=0)
    stop_words: list[str] = Field(default=[], description="The text ends before the first one.")
    end_id: int | None = Field(default=None, description="Token id that ends the text.")
    stream: bool = Field(default=True, description="Send text as it comes, not only at the end.")


class Counts(Record):
    """What the server counted over one whole request; None where it did not say."""

    output_tokens: int | None = None
    steps: int | None = Field(default=None, description="Draft-then-verify rounds.")
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted; None when nothing was drafted."""
        if not self.drafted_tokens or self.accepted_tokens is None:
            return None
        return self.accepted_tokens / self.drafted_tokens

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens emitted per target pass, bonus included."""
        if not self.steps or self.output_tokens is None:
            return None
        return self.output_tokens / self.steps

    def updated(self, later: Counts) -> Counts:
        """Return these counts with every one that ``later`` states replaced by it."""
        stated = {name: count for name, count in dict(later).items() if count is not None}
        return self.evolve(**stated)


class Chunk(Record):
    """A piece of text as it arrived."""

    text: str
    received_s: float = Field(description="Seconds on the client's monotonic clock.")
    counts: Counts = Field(default=Counts(), description="So far, as far as the server says.")


class GenerationResult(Record):
    """One finished generation. Times are seconds on the client's monotonic clock."""

    model: str
    prompt: str
    text: str
    counts: Counts
    chunks: list[Chunk]
    sent_s: float
    finished_s: float

    @property
    def duration_s(self) -> float:
        """From sending the request to the end of the answer."""
        return self.finished_s - self.sent_s

    @property
    def ttft_s(self) -> float | None:
        """From sending the request to the first text that is not empty (TTFT)."""
        times = self.text_times_s
        return times[0] - self.sent_s if times else None

    @property
    def text_times_s(self) -> list[float]:
        """When each chunk with text in it arrived.

        A chunk may hold several tokens, so that the gaps between these are not ITL samples.
        """
        return [chunk.received_s for chunk in self.chunks if chunk.text]

    @property
    def itl_s(self) -> float | None:
        """Mean inter-token latency: first text to last text, over the tokens after the first.

        None when the server states no token counts or everything came at once.
        """
        texts = [chunk for chunk in self.chunks if chunk.text]
        if not texts or self.counts.output_tokens is None:
            return None
        later = self.counts.output_tokens - (texts[0].counts.output_tokens or 1)
        span = texts[-1].received_s - texts[0].received_s
        return span / later if later > 0 and len(texts) > 1 else None

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens over the whole duration."""
        if self.counts.output_tokens is None or self.duration_s <= 0:
            return None
        return self.counts.output_tokens / self.duration_s


class Answer(Document):
    """The result of ``specdeploy ask``."""

    url: str
    model: str
    text: str
    output_tokens: int | None
    steps: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    acceptance_rate: float | None = Field(description="Accepted / drafted.")
    tokens_per_step: float | None = Field(description="Bonus token included.")
    tokens_per_second: float | None
    ttft_s: float | None
    itl_s: float | None
    duration_s: float

    @classmethod
    def of(cls, result: GenerationResult, *, url: str) -> Self:
        """Return the figures of one generation."""
        return cls(
            url=url,
            model=result.model,
            text=result.text,
            **dict(result.counts),
            acceptance_rate=result.counts.acceptance_rate,
            tokens_per_step=result.counts.tokens_per_step,
            tokens_per_second=result.tokens_per_second,
            ttft_s=result.ttft_s,
            itl_s=result.itl_s,
            duration_s=result.duration_s,
        )
