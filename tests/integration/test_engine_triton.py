"""The engine shape on a real tritonserver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import torch
from engine_in_process import chain_pair
from engine_plans import a_deployment, a_plan, write_repository
from plain_decoding import PlainTarget
from servers import running_server
from tokenizers import Tokenizer
from triton_client import Asking, Client, Outputs, number, text_of
from tritonclient.utils import InferenceServerException

from specdeploy.core.deployment import Deployment
from specdeploy.core.repository import Method

pytestmark = pytest.mark.triton

PAIR: Final = Path(__file__).parents[2] / "examples/tiny-pair"

# No byte of it twice: characters of one, two and four bytes.
TEXT: Final = "aé😀bcdefgh"
ROUND: Final = "é😀bcdefgha"
TOKENS_PER_ROUND: Final = len(TEXT.encode())
E_ID: Final = ord("e") - ord("!")


def client_of(deployment: Deployment, folder: Path) -> Iterator[Client]:
    plan = a_plan(deployment)
    repository = write_repository(folder / "repository", plan)
    with running_server(
        repository,
        workspace=folder,
        environment=plan.environment,
        startup_timeout_s=600,
        stop_at_once=True,
    ) as server:
        yield Client(server)


@pytest.fixture(scope="module", params=["draft_target", "ngram"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    method: Method = request.param
    deployment = a_deployment(PAIR, method=method, end_ids=())
    yield from client_of(deployment, tmp_path_factory.mktemp(method))


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain_pair(tmp_path_factory.mktemp("chains"), TEXT, wrong="dh")


@pytest.fixture(scope="module")
def speculative(chains: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    yield from client_of(a_deployment(chains), tmp_path_factory.mktemp("speculative"))


@pytest.fixture(scope="module")
def classic(chains: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    deployment = a_deployment(chains, method="none")
    yield from client_of(deployment, tmp_path_factory.mktemp("classic"))


@pytest.fixture(scope="module", params=["speculative", "classic"])
def either(request: pytest.FixtureRequest) -> Client:
    client: Client = request.getfixturevalue(request.param)
    return client


def test_greedy_answers_through_the_server_are_the_targets(pair: Client) -> None:
    texts = [path.read_text()[:150] for path in sorted((PAIR / "held_out").glob("*.txt"))[:10]]
    tokenizer = Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
    target = PlainTarget(PAIR / "target", dtype=torch.float32)
    accepted = 0.0
    for text in texts:
        plain = target.answer(tokenizer.encode(text).ids, 12)
        for draft_length in (0, 1, 4, 8):
            responses = pair.ask(text, max_tokens=12, num_draft_tokens=draft_length)
            assert text_of(responses) == tokenizer.decode(plain.ids), f"draft length {draft_length}"
            assert number(responses, "num_output_tokens") == 12
            accepted += number(responses, "total_accepted_draft_tokens")
    assert accepted > 40


def test_a_stream_joins_to_the_text_that_is_not_streamed(either: Client) -> None:
    whole = either.ask("a", max_tokens=40)
    streamed = either.ask("a", max_tokens=40, stream=True)
    assert len(whole) == 1
    assert len(streamed) > 8
    assert text_of(streamed) == text_of(whole)
    assert text_of(whole).startswith(ROUND * 2)


def test_every_streamed_piece_is_whole_characters(either: Client) -> None:
    streamed = either.ask("a", max_tokens=2 * TOKENS_PER_ROUND, stream=True)
    assert text_of(streamed) == ROUND * 2
    assert "\N{REPLACEMENT CHARACTER}" not in text_of(streamed)


@pytest.mark.parametrize("stream", [True, False])
def test_stop_words_end_the_answer_before_them(either: Client, *, stream: bool) -> None:
    responses = either.ask("a", max_tokens=60, stop_words=["zz", "ef"], stream=stream)
    assert text_of(responses) == "é😀bcd"
    assert number(responses, "num_output_tokens") == 11


@pytest.mark.parametrize("stream", [True, False])
def test_an_end_id_ends_the_answer(either: Client, *, stream: bool) -> None:
    responses = either.ask("a", max_tokens=60, end_id=E_ID, stream=stream)
    assert text_of(responses) == "é😀bcd"
    assert number(responses, "num_output_tokens") == 10


@pytest.mark.parametrize("max_tokens", [1, 2, 7])
def test_the_answer_has_the_tokens_asked_for(either: Client, max_tokens: int) -> None:
    for stream in (True, False):
        responses = either.ask("b", max_tokens=max_tokens, stream=stream)
        assert number(responses, "num_output_tokens") == max_tokens
        assert text_of(responses) == "cdefgha"[:max_tokens]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text_input": ""}, "empty"),
        ({"max_tokens": 0}, "must be at least 1, not 0"),
        ({"max_tokens": 5000}, "more than the 1024 tokens"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"beam_width": 3}, "beam_width = 3 is not supported"),
        ({"bad_words": ["x"]}, "bad_words"),
    ],
)
def test_a_bad_request_is_an_error_and_the_next_one_is_served(
    either: Client, inputs: dict[str, object], message: str
) -> None:
    wanted = {"text_input": "a", "max_tokens": 4, "stream": True}
    with pytest.raises(InferenceServerException, match=message):
        either.infer(either.entry_model, {**wanted, **inputs})
    assert text_of(either.ask("a", max_tokens=2)) == "é"


@pytest.mark.parametrize("value", [-1, 17])
def test_a_draft_length_out_of_range_is_refused_by_name(speculative: Client, value: int) -> None:
    with pytest.raises(InferenceServerException, match="num_draft_tokens"):
        speculative.ask("a", num_draft_tokens=value)


def test_a_request_chooses_its_draft_length(speculative: Client) -> None:
    for draft_length in (0, 3):
        responses = speculative.ask("a", max_tokens=24, num_draft_tokens=draft_length)
        drafted = number(responses, "total_draft_tokens")
        steps = number(responses, "num_spec_steps")
        assert drafted <= draft_length * steps
        assert bool(drafted) == bool(draft_length)
        assert number(responses, "num_output_tokens") == 24


def test_counts_cover_the_whole_request(speculative: Client) -> None:
    before = speculative.calls("tensorrt_llm")
    responses = speculative.ask("a", max_tokens=40, stream=True)
    steps = number(responses, "num_spec_steps")
    accepted = number(responses, "total_accepted_draft_tokens")
    drafted = number(responses, "total_draft_tokens")
    assert speculative.calls("tensorrt_llm") - before == steps
    assert steps + accepted == 40
    assert number(responses, "acceptance_rate") == pytest.approx(accepted / drafted)
    assert 0 < accepted < drafted


def test_sampled_answers_repeat_with_their_seed(speculative: Client) -> None:
    def sampled(seed: int) -> str:
        inputs = {"temperature": 3.0, "top_k": 50, "random_seed": seed, "max_tokens": 20}
        raw = [r["text_output"].reshape(-1)[0] for r in speculative.ask("a", **inputs)]
        return b"".join(raw).decode()

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)


def test_requests_side_by_side_do_not_mix(either: Client) -> None:
    """Many rounds: two threads that publish metrics at the same time end a Triton 2.51."""
    for _ in range(20):
        asked = {first: begin(either, first) for first in "abcdefgh"}
        for first, asking in asked.items():
            pieces = finish(asking)
            start = (TEXT + TEXT).index(first) + 1
            said = text_of(pieces).rstrip("\N{REPLACEMENT CHARACTER}")
            assert (TEXT * 4)[start:].startswith(said)
            assert number(pieces, "num_output_tokens") == 30


def begin(client: Client, text: str) -> Asking:
    inputs = {"text_input": text, "max_tokens": 30, "stream": True}
    return client.begin(client.entry_model, inputs)


def finish(asking: Asking) -> list[Outputs]:
    pieces: list[Outputs] = []
    last = False
    while not last:
        values, last = asking.response()
        pieces += [values] if values else []
    asking.close()
    return pieces


def test_a_client_that_goes_away_ends_the_work(speculative: Client) -> None:
    before = speculative.calls("tensorrt_llm")
    inputs = {"text_input": "a", "max_tokens": 1000, "stream": True}
    asking = speculative.begin("speculative", inputs)
    asking.response()
    asking.close(cancel=True)
    assert settled_calls(speculative, "tensorrt_llm") - before < 200
    assert text_of(speculative.ask("a", max_tokens=2)) == "é"


def test_the_classic_arm_serves_on_when_a_client_goes_away(classic: Client) -> None:
    """Triton's ensembles do not tell their models; the answer is made to its end."""
    asking = classic.begin("ensemble", {"text_input": "a", "max_tokens": 1000, "stream": True})
    asking.response()
    asking.close(cancel=True)
    assert text_of(classic.ask("a", max_tokens=2)) == "é"


def settled_calls(client: Client, model: str) -> int:
    """Return how many calls a model got once the count stands still."""
    before, after = -1, client.calls(model)
    while before != after:
        time.sleep(0.5)
        before, after = after, client.calls(model)
    return after


def test_metrics_count_what_the_answers_say(speculative: Client) -> None:
    before = counters(speculative)
    answers = [speculative.ask("a", max_tokens=30), speculative.ask("c", max_tokens=11)]
    expected = {
        "specdeploy_requests_total": 2.0,
        "specdeploy_steps_total": sum(number(a, "num_spec_steps") for a in answers),
        "specdeploy_drafted_tokens_total": sum(number(a, "total_draft_tokens") for a in answers),
        "specdeploy_accepted_tokens_total": sum(
            number(a, "total_accepted_draft_tokens") for a in answers
        ),
        "specdeploy_tokens_per_step_sum": 41.0,
    }
    expected["specdeploy_tokens_per_step_count"] = expected["specdeploy_steps_total"]
    # They are published after the last response.
    grown: dict[str, float] = {}
    deadline = time.monotonic() + 30
    while grown != expected and time.monotonic() < deadline:
        after = counters(speculative)
        grown = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in expected}
    assert grown == expected


def counters(client: Client) -> dict[str, float]:
    return {
        name.partition("{")[0]: value
        for name, value in client.metrics().items()
        if name.startswith("specdeploy_") and "_bucket" not in name
    }


def test_the_leaf_speaks_for_itself(speculative: Client) -> None:
    """Calls without our model, as upstream's own scripts make them."""
    query = {"QUERY": "a", "REQUEST_OUTPUT_LEN": 3}
    ids = speculative.infer("preprocessing", query, ["INPUT_ID"])[0]["INPUT_ID"]
    call = {"input_ids": ids, "input_lengths": ids.shape[1], "request_output_len": 3}
    wanted = ["output_ids", "sequence_length"]
    answer = speculative.infer("tensorrt_llm", call, wanted)[0]
    tensors = {"TOKENS_BATCH": answer["output_ids"], "SEQUENCE_LENGTH": answer["sequence_length"]}
    text = speculative.infer("postprocessing", tensors, ["OUTPUT"])[0]["OUTPUT"]
    assert answer["output_ids"].shape == (1, 1, 3)
    assert text.reshape(-1)[0].decode().startswith("é")
