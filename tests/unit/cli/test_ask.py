from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from scripted_server import Script, failure, response, scripted_server

from specdeploy.cli import run

COUNTS = {
    "num_output_tokens": 2,
    "num_spec_steps": 1,
    "total_draft_tokens": 4,
    "total_accepted_draft_tokens": 1,
}


@dataclass
class Served:
    """A scripted server and its address."""

    script: Script
    url: str


@pytest.fixture
def served() -> Iterator[Served]:
    steps = [response("one "), response("two", counts=COUNTS), response(final=True)]
    script = Script(steps)
    with scripted_server(script) as url:
        yield Served(script, url)


def test_the_text_is_stdout_and_the_figures_are_stderr(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ask", "hi", "--url", served.url]) == 0
    out, err = capsys.readouterr()
    assert out == "one two\n"
    assert err.startswith("2 tokens, ")
    assert "TTFT " in err
    assert err.endswith(" ms, acceptance rate 0.25, 2.00 tokens per step\n")


def test_figures_that_the_server_does_not_state_are_dashes(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.script.steps = [response("x", final=True)]
    assert run(["ask", "hi", "--url", served.url]) == 0
    err = capsys.readouterr().err
    assert err.startswith("- tokens, - tokens/s, TTFT ")
    assert err.endswith("acceptance rate -, - tokens per step\n")


def test_json_is_one_document_with_everything(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ask", "hi", "--url", served.url, "--json"]) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert (answer["text"], answer["output_tokens"]) == ("one two", 2)
    assert (answer["acceptance_rate"], answer["tokens_per_step"]) == (0.25, 2.0)
    assert answer["tokens_per_second"] > 0
    assert err == ""


def test_every_option_reaches_the_request(served: Served) -> None:
    words = ["--max-tokens", "9", "--draft-length", "0", "--temperature", "0.5", "--seed", "3"]
    assert run(["ask", "hi", "--url", served.url, *words, "--stop", "a", "--stop", "b"]) == 0
    (request,) = served.script.requests
    names = [tensor.name for tensor in request.inputs]
    sent = dict(zip(names, request.raw_input_contents, strict=True))
    assert sent["max_tokens"] == b"\x09\0\0\0"
    assert sent["num_draft_tokens"] == b"\0\0\0\0"
    assert sent["temperature"] == b"\0\0\0\x3f"
    assert sent["random_seed"] == b"\x03\0\0\0\0\0\0\0"
    assert sent["stop_words"] == b"\x01\0\0\0a\x01\0\0\0b"
    assert sent["stream"] == b"\x01"


def test_a_number_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ask", "hi", "--url", "127.0.0.1:1", "--temperature", "nan"]) == 2
    assert "error: --temperature: " in capsys.readouterr().err


def test_no_stream_is_said_to_the_server(served: Served) -> None:
    assert run(["ask", "hi", "--url", served.url, "--no-stream"]) == 0
    (request,) = served.script.requests
    names = [tensor.name for tensor in request.inputs]
    assert request.raw_input_contents[names.index("stream")] == b"\0"


def test_a_dash_reads_the_prompt_from_standard_input(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("naïve\n".encode()), "ascii"))
    assert run(["ask", "-", "--url", served.url]) == 0
    (request,) = served.script.requests
    assert request.raw_input_contents[0][4:] == "naïve\n".encode()


@pytest.mark.parametrize("prompt", ["", "-"])
def test_an_empty_prompt_is_a_usage_error(
    prompt: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert run(["ask", prompt, "--url", "127.0.0.1:1"]) == 2
    assert "the prompt is empty" in capsys.readouterr().err


@pytest.mark.parametrize("prompt", ["a\udcff", "-"])
def test_a_prompt_that_is_not_utf_8_is_a_usage_error(
    prompt: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert run(["ask", prompt, "--url", "127.0.0.1:1"]) == 2
    assert "the prompt is not UTF-8" in capsys.readouterr().err


def test_text_that_the_terminal_cannot_encode_is_written_all_the_same(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.script.steps = [response("漢字", final=True)]
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    assert run(["ask", "hi", "--url", served.url]) == 0
    assert raw.getvalue() == "漢字\n".encode()


def test_an_error_of_the_model_exits_8(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.script.steps = [response("one "), failure("no room")]
    assert run(["ask", "hi", "--url", served.url]) == 8
    assert "error: the server answered: no room" in capsys.readouterr().err


def test_a_server_that_is_late_exits_8(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.script.steps = [lambda _: served.script.cancelled.wait(30)]
    assert run(["ask", "hi", "--url", served.url, "--timeout", "0.3"]) == 8
    assert "within 0.3 s" in capsys.readouterr().err


def test_no_server_to_ask_exits_8_and_says_how_to_start_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ask", "hi", "--workspace", str(tmp_path)]) == 8
    assert "hint: start one with: specdeploy serve" in capsys.readouterr().err


def test_quiet_leaves_the_figures_out(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ask", "hi", "--url", served.url, "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_a_reader_that_goes_away_cancels_the_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "nobody reads")

    monkeypatch.setattr(click, "echo", gone)
    served.script.steps = [response("one "), lambda _: served.script.cancelled.wait(30)]
    with pytest.raises(BrokenPipeError):
        run(["ask", "hi", "--url", served.url])
    assert served.script.cancelled.wait(10)


def test_an_interrupt_exits_130_and_cancels_the_request(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.script.steps = [
        response("one "),
        lambda _: os.kill(os.getpid(), signal.SIGINT),
        lambda _: served.script.cancelled.wait(30),
    ]
    assert run(["ask", "hi", "--url", served.url]) == 130
    assert served.script.cancelled.wait(10)
    assert "error: interrupted" in capsys.readouterr().err
