"""The file that Triton serves, run in this process over the reference leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_models import pad_rows
from engine_in_process import ask, chain_pair, count, engine_shape, error_of, text_of
from engine_plans import a_deployment
from fake_triton import FakeTriton

TEXT = "aé😀bcdefgh"
SAID = "é😀bcdefghaé😀bcdefgh"
# "e" in the byte tokenizer, whose alphabet begins with "!".
E_ID = ord("e") - ord("!")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain_pair(tmp_path_factory.mktemp("pair"), TEXT, wrong="dh")


@pytest.fixture
def triton(pair: Path) -> FakeTriton:
    return engine_shape(a_deployment(pair, end_ids=()))


@pytest.mark.parametrize("draft_length", [0, 1, 4, 8])
def test_the_answer_is_the_targets(triton: FakeTriton, draft_length: int) -> None:
    answer = ask(triton, "a", max_tokens=27, num_draft_tokens=draft_length)
    assert text_of(answer) == SAID
    assert len(answer.responses) == 1
    assert count(answer, "num_output_tokens") == 27


def test_a_stream_joins_to_the_same_text_in_whole_characters(triton: FakeTriton) -> None:
    answer = ask(triton, "a", max_tokens=27, stream=True, num_draft_tokens=2)
    assert len(answer.responses) > 4
    assert text_of(answer) == SAID
    for response in answer.responses:
        response.outputs["text_output"].item().decode()


def test_the_final_response_has_the_counts_of_the_whole_request(
    triton: FakeTriton,
) -> None:
    answer = ask(triton, "a", max_tokens=27, stream=True)
    so_far = {"text_output", "num_output_tokens"}
    assert all(set(r.outputs) == so_far for r in answer.responses[:-1])
    steps, drafted = count(answer, "num_spec_steps"), count(answer, "total_draft_tokens")
    accepted = count(answer, "total_accepted_draft_tokens")
    assert count(answer, "num_output_tokens") == 27 == steps + accepted
    assert count(answer, "acceptance_rate") == pytest.approx(accepted / drafted)
    assert 0 < accepted < drafted
    calls = [model for model, _ in triton.calls]
    assert calls.count("tensorrt_llm") == steps


def test_a_stop_word_ends_the_answer_before_it(triton: FakeTriton) -> None:
    answer = ask(triton, "a", stop_words=["zz", "ef"], stream=True, num_draft_tokens=8)
    assert text_of(answer) == "é😀bcd"
    assert count(answer, "num_output_tokens") == 11


def test_an_end_id_ends_the_answer(triton: FakeTriton) -> None:
    answer = ask(triton, "a", end_id=E_ID, num_draft_tokens=8)
    assert text_of(answer) == "é😀bcd"
    assert count(answer, "num_output_tokens") == 10


def test_the_deployments_end_ids_are_used_when_a_request_has_none(pair: Path) -> None:
    triton = engine_shape(a_deployment(pair, end_ids=(E_ID,)))
    assert text_of(ask(triton, "a")) == "é😀bcd"


def test_prompt_lookup_asks_no_draft_model(pair: Path) -> None:
    triton = engine_shape(a_deployment(pair, method="ngram", end_ids=()))
    answer = ask(triton, TEXT + "a", max_tokens=27)
    assert text_of(answer) == SAID
    assert count(answer, "acceptance_rate") == 1.0
    assert {model for model, _ in triton.calls} == {"preprocessing", "tensorrt_llm"}


def test_greedy_rounds_send_as_few_tensors_as_they_can(triton: FakeTriton) -> None:
    ask(triton, "a")
    (_, draft), (_, target) = triton.calls[1:3]
    assert set(draft) == {"input_ids", "input_lengths", "request_output_len"}
    assert set(target) == {*draft, "draft_input_ids"}


def test_sampled_rounds_share_settings_and_never_random_numbers(triton: FakeTriton) -> None:
    ask(triton, "a", temperature=0.7, top_k=5, top_p=0.9, random_seed=3)
    calls = [tensors for model, tensors in triton.calls if model != "preprocessing"]
    for name, value in (("temperature", 0.7), ("runtime_top_k", 5), ("runtime_top_p", 0.9)):
        assert {round(float(c[name].item()), 4) for c in calls} == {value}
    seeds = [int(c["random_seed"].item()) for c in calls]
    assert len(set(seeds)) == len(seeds)


def test_sampled_targets_get_the_logits_that_the_draft_drew_from(triton: FakeTriton) -> None:
    ask(triton, "a", temperature=0.7)
    (_, draft), (_, target) = triton.calls[1:3]
    assert draft["return_generation_logits"].item() is True
    assert target["draft_logits"].shape == (1, 4, 258)


def test_an_answer_repeats_with_its_seed(triton: FakeTriton) -> None:
    def sampled(seed: int) -> str:
        return text_of(ask(triton, "a", temperature=2.0, random_seed=seed))

    assert sampled(5) == sampled(5)
    assert sampled(5) != sampled(6)


def test_the_prompt_is_part_of_the_answer_when_asked_for(triton: FakeTriton) -> None:
    answer = ask(triton, "bc", max_tokens=3, exclude_input_in_output=False)
    assert text_of(answer) == "bcdef"


def test_performance_metrics_are_answered_when_asked_for(triton: FakeTriton) -> None:
    answer = ask(triton, "a", return_perf_metrics=True)
    names = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns")
    times = [count(answer, name) for name in (*names, "last_token_time_ns")]
    assert times == sorted(times)
    assert times[0] > 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"num_draft_tokens": -1}, "num_draft_tokens must be at least 0, not -1"),
        ({"num_draft_tokens": 99}, "num_draft_tokens is 99; this server drafts at most 16"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        ({"max_tokens": 2000}, "together more than the 1024 tokens"),
        ({"text": ""}, "text_input is empty"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"beam_width": 4}, "beam_width = 4 is not supported"),
    ],
)
def test_a_bad_request_is_one_error_that_says_what_is_wrong(
    triton: FakeTriton, inputs: dict[str, Any], message: str
) -> None:
    answer = ask(triton, **{"text": "a", **inputs})
    assert message in error_of(answer)
    assert len(answer.responses) == 1
    assert "tensorrt_llm" not in {model for model, _ in triton.calls}


@pytest.mark.parametrize("model", ["preprocessing", "tensorrt_llm", "tensorrt_llm_draft"])
def test_a_failing_model_is_an_error_that_names_it(triton: FakeTriton, model: str) -> None:
    triton.broken[model] = "out of memory"
    assert error_of(ask(triton, "a")) == f"{model}: out of memory"


def test_a_model_that_answers_nonsense_is_an_error(triton: FakeTriton) -> None:
    triton.answers["tensorrt_llm"] = {"sequence_length": np.array([[1]], dtype=np.int32)}
    assert error_of(ask(triton, "a")) == "tensorrt_llm answered without output_ids"


def test_a_client_that_goes_away_ends_the_calls(triton: FakeTriton) -> None:
    inputs = {"text_input": "a", "max_tokens": 900, "stream": True, "num_draft_tokens": 0}
    answer = triton.ask("speculative", inputs, cancel_after=3)
    assert error_of(answer) == "the request was cancelled"
    assert len(triton.calls) < 12


def test_metrics_count_the_requests_steps_and_tokens(triton: FakeTriton) -> None:
    answers = [ask(triton, "a", max_tokens=27), ask(triton, "a", max_tokens=5)]
    triton.finalize("speculative")
    metrics = triton.metrics
    assert metrics["specdeploy_requests_total"].value == 2
    for metric, output in (
        ("specdeploy_steps_total", "num_spec_steps"),
        ("specdeploy_drafted_tokens_total", "total_draft_tokens"),
        ("specdeploy_accepted_tokens_total", "total_accepted_draft_tokens"),
    ):
        assert metrics[metric].value == sum(count(answer, output) for answer in answers)
    assert sum(metrics["specdeploy_tokens_per_step"].seen) == 32


def test_a_failed_request_is_not_counted_as_answered(triton: FakeTriton) -> None:
    ask(triton, "a", max_tokens=0)
    triton.finalize("speculative")
    assert triton.metrics["specdeploy_requests_total"].value == 0


def test_a_sampled_request_is_served_by_a_pair_of_different_rows(tmp_path: Path) -> None:
    pair = chain_pair(tmp_path, TEXT, wrong="dh")
    pad_rows(pair / "draft", 32)
    draft = a_deployment(pair).draft
    assert draft is not None
    wider = draft.evolve(spec=draft.spec.evolve(vocab_size=draft.spec.vocab_size + 32))
    triton = engine_shape(a_deployment(pair, end_ids=(), draft=wider))
    assert count(ask(triton, "a", temperature=0.05), "num_output_tokens") == 24
    told = error_of(ask(triton, "a", temperature=0.05, use_draft_logits=True))
    assert "draft_logits has the shape" in told


def test_a_proposal_is_cut_at_an_id_that_the_target_does_not_have(tmp_path: Path) -> None:
    pair = chain_pair(tmp_path, TEXT)
    rows = json.loads((pair / "target/config.json").read_text())["vocab_size"]
    # The new rows have the same score as most: so hot, nearly every draw is one of them.
    pad_rows(pair / "draft", 40 * rows)
    both = a_deployment(pair, end_ids=())
    assert both.draft is not None
    target = both.target.evolve(spec=both.target.spec.evolve(vocab_size=rows))
    draft = both.draft.evolve(spec=both.draft.spec.evolve(vocab_size=41 * rows))
    triton = engine_shape(both.evolve(target=target, draft=draft))
    answer = ask(triton, "a", temperature=50.0)
    assert count(answer, "num_output_tokens") == 24
    assert count(answer, "total_draft_tokens") < 24
