from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from causal_lm import ModelError
from llm_types import SamplingParams
from reference_llm import LLM, RequestOutput
from reference_pairs import END_ID, VOCAB_SIZE, write_model, write_pair
from transformers import MambaConfig, MambaForCausalLM

PROMPT = "once upon a time there was"


def an_llm(pair: Path, method: str = "Draft_Target", **changes: object) -> LLM:
    """An engine over ``pair``; method ``none`` has no speculation."""
    speculative = {"decoding_type": method, "max_draft_len": 3}
    if method == "Draft_Target":
        speculative["speculative_model"] = str(pair / "draft")
    settings: dict[str, Any] = {"model": str(pair / "target"), "max_batch_size": 2}
    if method != "none":
        settings["speculative_config"] = speculative
    return LLM(**{**settings, **changes})


def ask(
    llm: LLM,
    prompt: str = PROMPT,
    *,
    k: int | None = None,
    **sampling: Any,  # noqa: ANN401 - whatever SamplingParams takes
) -> RequestOutput:
    params = SamplingParams(**{"max_tokens": 40, "end_id": -1, **sampling})
    return llm.generate_async(prompt, params, draft_length=k).result()


@pytest.fixture(scope="module")
def llm(pair: Path) -> LLM:
    return an_llm(pair)


@pytest.mark.parametrize("method", ["Draft_Target", "DraftTarget", "NGram"])
@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_speculation_does_not_change_a_greedy_answer(pair: Path, method: str, k: int) -> None:
    if method == "DraftTarget":
        config = {"decoding_type": method, "max_draft_len": 2}
        config["speculative_model_dir"] = str(pair / "draft")
        llm = an_llm(pair, "none", speculative_config=config)
    else:
        llm = an_llm(pair, method)
    expected = ask(an_llm(pair, "none")).outputs[0]
    answer = ask(llm, k=k).outputs[0]
    assert answer.token_ids == expected.token_ids
    assert answer.text == expected.text


def test_drafts_of_a_model_are_partly_accepted_and_counted(llm: LLM) -> None:
    output = ask(llm, k=4).outputs[0]
    counts = output.request_perf_metrics.speculative_decoding
    assert 0 < counts.total_accepted_draft_tokens < counts.total_draft_tokens
    # Every step emits what it accepted and one token more.
    assert output.length == counts.total_accepted_draft_tokens + counts.steps
    assert counts.acceptance_rate == pytest.approx(
        counts.total_accepted_draft_tokens / counts.total_draft_tokens
    )


def test_draft_length_zero_drafts_nothing(llm: LLM) -> None:
    output = ask(llm, k=0).outputs[0]
    counts = output.request_perf_metrics.speculative_decoding
    assert (counts.total_draft_tokens, counts.acceptance_rate) == (0, 0)
    assert counts.steps == output.length


def test_a_request_that_does_not_say_gets_the_configured_draft_length(llm: LLM) -> None:
    counts = ask(llm, max_tokens=4).outputs[0].request_perf_metrics.speculative_decoding
    assert counts.total_draft_tokens >= 3


def test_no_more_is_drafted_than_the_answer_may_hold(llm: LLM) -> None:
    counts = ask(llm, k=8, max_tokens=2).outputs[0].request_perf_metrics.speculative_decoding
    assert counts.total_draft_tokens <= 1


def test_streaming_yields_after_every_step_and_its_pieces_join_to_the_text(llm: LLM) -> None:
    pieces = [
        output.outputs[0].text_diff
        for output in llm.generate_async(PROMPT, SamplingParams(max_tokens=30, end_id=-1))
    ]
    whole = ask(llm, max_tokens=30).outputs[0]
    assert "".join(pieces) == whole.text
    assert len(pieces) == whole.request_perf_metrics.speculative_decoding.steps > 3


def test_without_streaming_one_output_comes_at_the_end(llm: LLM) -> None:
    result = llm.generate_async(PROMPT, SamplingParams(max_tokens=9, end_id=-1), streaming=False)
    assert [output.finished for output in result] == [True]


def test_the_text_ends_before_a_stop_word(llm: LLM) -> None:
    text = ask(llm).outputs[0].text
    word = text[10:13]
    answer = ask(llm, stop=[word, "never"], k=8).outputs[0]
    assert answer.text == text[: text.index(word)]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", word)


def test_an_end_id_of_the_request_replaces_the_checkpoints(llm: LLM) -> None:
    ids = ask(llm).outputs[0].token_ids
    answer = ask(llm, end_id=ids[5], k=8).outputs[0]
    assert answer.token_ids == ids[: ids.index(ids[5]) + 1]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", ids[5])


def test_the_checkpoints_end_id_ends_an_answer(pair: Path, tmp_path: Path) -> None:
    ids = ask(an_llm(pair, "none")).outputs[0].token_ids
    shutil.copytree(pair / "target", tmp_path / "target")
    settings = json.dumps({"eos_token_id": [END_ID, ids[3]]})
    (tmp_path / "target/generation_config.json").write_text(settings)
    answer = ask(an_llm(tmp_path, "none"), end_id=None).outputs[0]
    assert answer.token_ids == ids[: ids.index(ids[3]) + 1]


def test_a_seed_repeats_an_answer_and_another_seed_changes_it(llm: LLM) -> None:
    first, again, other = (
        ask(llm, seed=seed, temperature=1.5, k=3).outputs[0] for seed in (5, 5, 6)
    )
    assert first.token_ids == again.token_ids != other.token_ids


def test_requests_of_several_threads_do_not_disturb_each_other(llm: LLM) -> None:
    prompts = [PROMPT, "the quick brown fox", "0123456789", PROMPT + " a", "zzz", "the quick"]
    expected = [ask(llm, prompt, k=0).outputs[0].token_ids for prompt in prompts]
    got: dict[int, list[int]] = {}

    def run(index: int) -> None:
        got[index] = ask(llm, prompts[index], k=4).outputs[0].token_ids

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(len(prompts))] == expected


def test_an_aborted_request_ends_after_its_step_and_frees_its_sessions(pair: Path) -> None:
    llm = an_llm(pair, max_batch_size=1)
    result = llm.generate_async(PROMPT, SamplingParams(max_tokens=100, end_id=-1))
    for output in result:
        output.abort()
    assert result.outputs[0].finish_reason == "cancelled"
    assert 0 < result.outputs[0].length <= 4
    assert ask(llm, max_tokens=3).outputs[0].length == 3


def test_a_request_that_is_not_read_to_its_end_frees_its_sessions(pair: Path) -> None:
    llm = an_llm(pair, max_batch_size=1)
    for _ in llm.generate_async(PROMPT, SamplingParams(max_tokens=100, end_id=-1)):
        break
    assert ask(llm, max_tokens=3).outputs[0].length == 3


@pytest.mark.parametrize(
    ("prompt", "sampling", "k", "message"),
    [
        ("", {}, None, "prompt is empty"),
        ([VOCAB_SIZE], {}, None, "vocabulary"),
        ("x" * 600, {}, None, "max_seq_len"),
        ("x", {"max_tokens": 512}, None, r"max_seq_len \(512\)"),
        ("x", {}, -1, "draft length"),
    ],
)
def test_requests_that_cannot_be_served_are_refused_before_any_work(
    llm: LLM, prompt: str | list[int], sampling: dict[str, Any], k: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        llm.generate_async(prompt, SamplingParams(**sampling), draft_length=k)


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 1.5}, "top_p"),
        ({"best_of": 2}, "best_of"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused_by_name(
    sampling: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**sampling)


@pytest.mark.parametrize("given", [{}, {"temperature": 0.0}, {"top_p": 0.0}, {"top_k": 1}])
def test_an_answer_is_greedy_by_default_and_by_every_spelling_of_greedy(
    given: dict[str, Any],
) -> None:
    assert SamplingParams(**given).choices().greedy


def test_top_k_alone_samples_at_temperature_one() -> None:
    choices = SamplingParams(top_k=5).choices()
    assert (choices.temperature, choices.top_k, choices.top_p) == (1.0, 5, 1.0)


def test_a_server_without_speculation_refuses_a_draft_length(pair: Path) -> None:
    llm = an_llm(pair, "none")
    assert ask(llm, k=0, max_tokens=2).finished
    with pytest.raises(ValueError, match="no speculative_config"):
        ask(llm, k=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kv_cache_free_gpu_memory_fraction": 0.9}, "invalid argument: kv_cache_free_gpu"),
        ({"dtype": "int4"}, "int4"),
        ({"speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 2}}, "Eagle3"),
        ({"speculative_config": {"decoding_type": "NGram", "max_draft_len": 0}}, "max_draft_len"),
        ({"speculative_config": {"decoding_type": "NGram", "max_draft": 2}}, "max_draft"),
        (
            {"speculative_config": {"decoding_type": "Draft_Target", "max_draft_len": 2}},
            "speculative_model",
        ),
    ],
)
def test_arguments_that_are_wrong_are_refused_by_name(
    pair: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        an_llm(pair, "none", **arguments)


def test_speculation_over_a_recurrent_target_is_refused(pair: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=VOCAB_SIZE, hidden_size=32, num_hidden_layers=2, state_size=4)
    write_model(MambaForCausalLM(config), tmp_path / "target")
    shutil.copytree(pair / "draft", tmp_path / "draft")
    with pytest.raises(ModelError, match="cannot be taken back"):
        an_llm(tmp_path)
    assert ask(an_llm(tmp_path, "none"), max_tokens=3).outputs[0].length == 3


@pytest.mark.parametrize("vocabulary", [VOCAB_SIZE - 20, VOCAB_SIZE + 30])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_with_another_number_of_logits_serves(
    tmp_path: Path, vocabulary: int, temperature: float
) -> None:
    pair = write_pair(tmp_path, draft_vocab_size=vocabulary)
    answer = ask(an_llm(pair), temperature=temperature, k=4).outputs[0]
    counts = answer.request_perf_metrics.speculative_decoding
    assert answer.length == 40
    assert counts.total_accepted_draft_tokens > 0
    if not temperature:
        assert answer.token_ids == ask(an_llm(pair, "none")).outputs[0].token_ids


def test_text_beyond_the_drafts_context_is_not_drafted(pair: Path, tmp_path: Path) -> None:
    shutil.copytree(pair, tmp_path / "pair")
    file = tmp_path / "pair/draft/config.json"
    config = json.loads(file.read_text()) | {"max_position_embeddings": 32}
    file.write_text(json.dumps(config))
    answer = ask(an_llm(tmp_path / "pair"), k=4).outputs[0]
    assert answer.token_ids == ask(an_llm(pair, "none")).outputs[0].token_ids
    assert answer.request_perf_metrics.speculative_decoding.total_draft_tokens <= 18


def test_times_of_a_request_are_in_order(llm: LLM) -> None:
    timing = ask(llm).outputs[0].request_perf_metrics.timing_metrics
    assert (
        timing.arrival_time
        <= timing.first_scheduled_time
        < timing.first_token_time
        < timing.last_token_time
    )
