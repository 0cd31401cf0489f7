"""The engine shape says what the target alone says: its own files, without a server."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import torch
from engine_in_process import ask, count, engine_shape
from engine_plans import a_deployment
from fake_triton import FakeTriton
from plain_decoding import Plain, PlainTarget, in_turn
from tokenizers import Tokenizer

from specdeploy.core.deployment import ResolvedLimits
from specdeploy.core.repository import Method

PAIR: Final = Path(__file__).parents[2] / "examples/tiny-pair"
PROMPTS: Final = 50
LENGTH: Final = 12
METHODS: tuple[Method, ...] = ("draft_target", "ngram")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def prompts() -> list[str]:
    """Fifty pieces of text that the pair was not trained on."""
    texts = [path.read_text() for path in sorted((PAIR / "held_out").glob("*.txt"))]
    return [texts[i % len(texts)][700 * (i // len(texts)) :][:150] for i in range(PROMPTS)]


@functools.cache
def plain_answers(dtype: torch.dtype) -> list[Plain]:
    tokenizer = Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
    target = PlainTarget(PAIR / "target", dtype=dtype)
    return [target.answer(tokenizer.encode(prompt).ids, LENGTH) for prompt in prompts()]


def engine(method: Method, precision: str) -> FakeTriton:
    # A slot per prompt, so that each prompt is read once for all draft lengths.
    limits = ResolvedLimits(max_batch_size=PROMPTS, max_seq_len=512, max_num_tokens=8192)
    deployment = a_deployment(PAIR, method=method, precision=precision, limits=limits, end_ids=())
    return engine_shape(deployment)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("method", METHODS)
def test_greedy_answers_in_float32_are_the_targets_token_for_token(
    method: Method, *, every: bool
) -> None:
    triton = engine(method, "fp32")
    accepted, answers = 0.0, 0
    for draft_length in range(9):
        for i, (prompt, plain) in enumerate(
            zip(prompts(), plain_answers(torch.float32), strict=True)
        ):
            if every or in_turn(i, draft_length):
                ids, hits = answered(triton, prompt, draft_length)
                assert ids == plain.ids, f"draft length {draft_length}: {prompt}"
                accepted, answers = accepted + hits, answers + 1
    assert accepted > answers * 8 / 9, "too few drafts were right for this to test anything"


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("method", METHODS)
def test_greedy_answers_in_16_bit_part_only_where_rounding_decides(
    method: Method, capsys: pytest.CaptureFixture[str], *, every: bool
) -> None:
    triton = engine(method, "bf16")
    answers = plain_answers(torch.bfloat16)
    parted: set[str] = set()
    for draft_length in range(1, 9):
        for i, (prompt, plain) in enumerate(zip(prompts(), answers, strict=True)):
            if draft_length == i % 8 + 1 or (every and in_turn(i, draft_length)):
                ids, _ = answered(triton, prompt, draft_length)
                assert ids[: plain.certain] == plain.ids[: plain.certain], prompt
                if ids != plain.ids:
                    parted.add(prompt)
    ties = sum(plain.certain < LENGTH for plain in answers)
    with capsys.disabled():
        print(f"\n{method}: {ties} of {PROMPTS} answers hold a tie; {len(parted)} part there")  # noqa: T201
    certain = sum(plain.certain for plain in answers)
    assert certain > PROMPTS * LENGTH / 2, "too few tokens are certain for this to test anything"


def answered(triton: FakeTriton, prompt: str, draft_length: int) -> tuple[list[int], float]:
    """Return an answer's tokens, as the target's leaf gave them, and the accepted drafts."""
    triton.replies.clear()
    triton.calls.clear()
    answer = ask(triton, prompt, max_tokens=LENGTH, num_draft_tokens=draft_length)
    runs = [o["output_ids"] for model, o in triton.replies if model == "tensorrt_llm"]
    ids = [token for run in runs for token in run[0, 0].tolist()]
    assert count(answer, "num_output_tokens") == len(ids)
    return ids, count(answer, "total_accepted_draft_tokens")
