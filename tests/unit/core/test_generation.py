from __future__ import annotations

import pytest

from specdeploy.core.generation import Answer, Chunk, Counts, GenerationResult


def result(
    *chunks: Chunk, counts: Counts | None = None, finished_s: float = 20.0
) -> GenerationResult:
    return GenerationResult(
        model="m",
        prompt="p",
        text="".join(chunk.text for chunk in chunks),
        counts=counts or Counts(),
        chunks=list(chunks),
        sent_s=10.0,
        finished_s=finished_s,
    )


def chunk(text: str, received_s: float, tokens: int | None = None) -> Chunk:
    return Chunk(text=text, received_s=received_s, counts=Counts(output_tokens=tokens))


def test_time_to_first_token_ends_at_the_first_text() -> None:
    assert result(chunk("", 11.0), chunk("a", 12.5)).ttft_s == 2.5


def test_an_answer_without_text_has_no_first_token() -> None:
    assert result(chunk("", 11.0)).ttft_s is None


def test_inter_token_latency_counts_tokens_and_not_chunks() -> None:
    """Two tokens come first; the eight after them take four seconds."""
    chunks = [chunk("ab", 12.0, 2), chunk("cdef", 14.0, 6), chunk("ghij", 16.0, 10)]
    assert result(*chunks, counts=Counts(output_tokens=10)).itl_s == 0.5


def test_the_first_token_is_no_inter_token_sample() -> None:
    chunks = [chunk(word, at, n) for n, (word, at) in enumerate([("a", 15.0), ("b", 15.1)], 1)]
    assert result(*chunks, counts=Counts(output_tokens=2)).itl_s == pytest.approx(0.1)


@pytest.mark.parametrize("tokens", [None, 0, 1])
def test_one_chunk_has_no_inter_token_latency(tokens: int | None) -> None:
    assert result(chunk("a", 12.0, tokens), counts=Counts(output_tokens=tokens)).itl_s is None


def test_tokens_per_second_span_the_whole_request() -> None:
    assert result(counts=Counts(output_tokens=50)).tokens_per_second == 5.0


def test_an_unknown_number_of_tokens_gives_no_speed() -> None:
    assert result().tokens_per_second is None


def test_acceptance_rate_is_accepted_over_drafted() -> None:
    assert Counts(drafted_tokens=8, accepted_tokens=6).acceptance_rate == 0.75


def test_nothing_drafted_has_no_acceptance_rate() -> None:
    assert Counts(drafted_tokens=0, accepted_tokens=0).acceptance_rate is None


def test_tokens_per_step_include_the_bonus() -> None:
    assert Counts(output_tokens=9, steps=3, accepted_tokens=6).tokens_per_step == 3.0


def test_later_counts_replace_only_what_they_state() -> None:
    first = Counts(output_tokens=1, steps=1)
    assert first.updated(Counts(output_tokens=4)) == Counts(output_tokens=4, steps=1)


def test_an_answer_states_the_figures_of_its_generation() -> None:
    counts = Counts(output_tokens=10, steps=4, drafted_tokens=16, accepted_tokens=6)
    answer = Answer.of(result(chunk("a", 11.0), counts=counts), url="h:1")
    assert (answer.acceptance_rate, answer.tokens_per_step) == (0.375, 2.5)
    assert (answer.ttft_s, answer.tokens_per_second) == (1.0, 1.0)
