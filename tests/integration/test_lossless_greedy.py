"""Speculation does not change greedy answers: the llmapi shape's loop against transformers."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest
import torch
from llm_types import SamplingParams
from plain_decoding import Plain, PlainTarget, bf16_step, in_turn
from reference_llm import LLM
from tokenizers import Tokenizer

PAIR = Path(__file__).parents[2] / "examples/tiny-pair"
NEW_TOKENS = 12
PROMPTS = 50


@functools.cache
def prompts() -> list[list[int]]:
    """Fifty pieces of the held-out files."""
    tokenizer = Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
    texts = [file.read_text() for file in sorted((PAIR / "held_out").iterdir())]
    per_text = math.ceil(PROMPTS / len(texts))
    pieces = [text[start * 700 :][:200] for start in range(per_text) for text in texts]
    return [list(tokenizer.encode(piece).ids)[:40] for piece in pieces[:PROMPTS]]


@functools.cache
def plain_answers(dtype: torch.dtype) -> list[Plain]:
    """Plain decoding: one model, one token after the other; shares no code with ours."""
    torch.set_num_threads(1)
    target = PlainTarget(PAIR / "target", dtype=dtype)
    return [target.answer(prompt, NEW_TOKENS) for prompt in prompts()]


def an_llm(method: str, dtype: str) -> LLM:
    config: dict[str, object] = {"decoding_type": method, "max_draft_len": 4}
    if method == "Draft_Target":
        config["speculative_model"] = str(PAIR / "draft")
    else:
        config["max_matching_ngram_size"] = 3
    return LLM(
        model=str(PAIR / "target"),
        dtype=dtype,
        # A session per prompt, so that each prompt is read once for all draft lengths.
        max_batch_size=PROMPTS,
        speculative_config=config,
    )


def answer(llm: LLM, prompt: list[int], k: int) -> tuple[list[int], int]:
    """Return the tokens of an answer and how many of them were accepted drafts."""
    params = SamplingParams(max_tokens=NEW_TOKENS, end_id=-1)
    output = llm.generate_async(prompt, params, draft_length=k).result().outputs[0]
    counts = output.request_perf_metrics.speculative_decoding
    return output.token_ids, counts.total_accepted_draft_tokens


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("method", ["Draft_Target", "NGram"])
def test_greedy_answers_in_float32_are_those_of_plain_decoding(method: str, *, every: bool) -> None:
    llm = an_llm(method, "float32")
    accepted, answers = 0, 0
    for k in range(9):
        for i, (prompt, plain) in enumerate(
            zip(prompts(), plain_answers(torch.float32), strict=True)
        ):
            if every or in_turn(i, k):
                ids, count = answer(llm, prompt, k)
                assert ids == plain.ids, f"draft length {k}: {prompt}"
                accepted, answers = accepted + count, answers + 1
    assert accepted > answers * 8 / 9, "too few drafts were accepted for this to test anything"


@pytest.mark.parametrize("method", ["Draft_Target", "NGram"])
@pytest.mark.parametrize("k", [3, 6])
def test_greedy_answers_in_bfloat16_differ_only_where_two_logits_are_one(
    method: str, k: int, capsys: pytest.CaptureFixture[str]
) -> None:
    llm = an_llm(method, "bfloat16")
    ties = 0
    for prompt, plain in zip(prompts(), plain_answers(torch.bfloat16), strict=True):
        ids, _ = answer(llm, prompt, k)
        assert ids[: plain.certain] == plain.ids[: plain.certain]
        ties += ids != plain.ids
    with capsys.disabled():
        print(f"\n{method}, draft length {k}: {ties} of {PROMPTS} answers part at a tie")  # noqa: T201


def test_the_rounding_step_is_that_of_bfloat16() -> None:
    one = torch.tensor(5.3, dtype=torch.bfloat16)
    neighbour = torch.nextafter(one, torch.tensor(0.0, dtype=torch.bfloat16))
    assert bf16_step(float(one)) == float(one) - float(neighbour)
