"""Speculation does not change greedy answers: the llmapi shape's loop against transformers."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from llm_types import SamplingParams
from reference_llm import LLM
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel

PAIR = Path(__file__).parents[2] / "examples/tiny-pair"
NEW_TOKENS = 12
PROMPTS = 50


class PlainAnswer(NamedTuple):
    """What transformers' own greedy generation says.

    Attributes:
        ids: The tokens.
        gaps: Best minus second best logit at each of them, before the logits were rounded,
            in rounding steps of bfloat16.
    """

    ids: list[int]
    gaps: list[float]


@functools.cache
def prompts() -> list[list[int]]:
    """Fifty pieces of the held-out files."""
    tokenizer = Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
    texts = [file.read_text() for file in sorted((PAIR / "held_out").iterdir())]
    per_text = math.ceil(PROMPTS / len(texts))
    pieces = [text[start * 700 :][:200] for start in range(per_text) for text in texts]
    return [list(tokenizer.encode(piece).ids)[:40] for piece in pieces[:PROMPTS]]


@functools.cache
def plain_answers(dtype: torch.dtype) -> list[PlainAnswer]:
    """Plain decoding: one model, one token after the other; shares no code with ours."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(PAIR / "target", dtype=dtype)
    return [_plain_answer(model, prompt) for prompt in prompts()]


def _plain_answer(model: PreTrainedModel, prompt: list[int]) -> PlainAnswer:
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=NEW_TOKENS,
        pad_token_id=0,
        output_hidden_states=True,
        return_dict_in_generate=True,
    )
    ids = output.sequences[0, len(prompt) :].tolist()
    head = model.get_output_embeddings().weight.float()
    last = [layers[-1][0, -1].float() for layers in output.hidden_states]
    return PlainAnswer(ids, [_gap_in_steps(head @ hidden) for hidden in last])


def _gap_in_steps(logits: torch.Tensor) -> float:
    """Bfloat16 keeps 8 significant bits, so its step at ``x`` is ``2 ** (exponent(x) - 8)``."""
    best, second = logits.topk(2).values.tolist()
    _, exponent = math.frexp(best)
    return float((best - second) / 2.0 ** (exponent - 8))


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
    params = SamplingParams(max_tokens=NEW_TOKENS)
    output = llm.generate_async(prompt, params, draft_length=k).result().outputs[0]
    counts = output.request_perf_metrics.speculative_decoding
    return output.token_ids, counts.total_accepted_draft_tokens


@pytest.mark.parametrize("method", ["Draft_Target", "NGram"])
def test_greedy_answers_in_float32_are_those_of_plain_decoding(method: str) -> None:
    llm = an_llm(method, "float32")
    expected = [plain.ids for plain in plain_answers(torch.float32)]
    accepted = 0
    for k in range(9):
        got = [answer(llm, prompt, k) for prompt in prompts()]
        assert [ids for ids, _ in got] == expected, f"draft length {k}"
        accepted += sum(count for _, count in got)
    assert accepted > 8 * PROMPTS, "too few drafts were accepted for this to test anything"


@pytest.mark.parametrize("method", ["Draft_Target", "NGram"])
@pytest.mark.parametrize("k", [3, 6])
def test_greedy_answers_in_bfloat16_differ_only_where_two_logits_are_one(
    method: str, k: int, capsys: pytest.CaptureFixture[str]
) -> None:
    llm = an_llm(method, "bfloat16")
    ties = 0
    for prompt, plain in zip(prompts(), plain_answers(torch.bfloat16), strict=True):
        ids, _ = answer(llm, prompt, k)
        first_tie = next((i for i, gap in enumerate(plain.gaps) if gap < 1), len(plain.ids))
        assert ids[:first_tie] == plain.ids[:first_tie], f"differs before {first_tie}"
        ties += ids != plain.ids
    with capsys.disabled():
        print(f"\n{method}, draft length {k}: {ties} of {PROMPTS} answers part at a tie")  # noqa: T201


def test_the_rounding_step_is_that_of_bfloat16() -> None:
    one = torch.tensor(5.3, dtype=torch.bfloat16)
    neighbour = torch.nextafter(one, torch.tensor(0.0, dtype=torch.bfloat16))
    assert _gap_in_steps(torch.stack([one, neighbour]).float()) == 1
