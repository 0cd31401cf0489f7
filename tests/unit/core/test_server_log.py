from __future__ import annotations

from pathlib import Path

import pytest

from specdeploy.core.server_log import (
    find_cause,
    is_bind_failure,
    read_model_event,
    telling_tail,
)

# What tritonserver 2.51 wrote on a machine without a GPU, tables left out.
LOGS = Path(__file__).parents[2] / "data/server_logs"
MISSING_LIBRARY = "error while loading shared libraries: libpython3.11.so.1.0: cannot open"


def lines_of(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text().splitlines()


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("model_raises", "failed to load 'speculative' version 1: Internal: ValueError: the weigh"),
        ("port_taken", "failed to start GRPC service: Unavailable - Socket '127.0.0.1:19001' alr"),
        ("config_broken", "Error parsing text-format inference.ModelConfig: 17:4: Message type "),
    ],
)
def test_the_most_telling_line_is_the_cause(log: str, cause: str) -> None:
    found = find_cause(lines_of(log))
    assert found is not None
    assert found.startswith(cause)
    assert "\\n" not in found


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (f"/x/stub: {MISSING_LIBRARY}", MISSING_LIBRARY),
        ('E1201 10:00:00.1 1 new_file.cc:1] "out of memory"', "out of memory"),
        ("error: creating server: Internal - no models", "creating server: Internal - no models"),
    ],
)
def test_a_line_of_any_error_is_better_than_no_cause(line: str, cause: str) -> None:
    assert find_cause([*lines_of("model_raises")[:3], line]) == cause


def test_what_a_machine_without_a_gpu_always_logs_is_no_cause() -> None:
    assert find_cause([*lines_of("model_raises")[:3], "Error: Failed to initialize NVML"]) is None


def test_the_states_of_a_model_are_read_in_order() -> None:
    events = [event for line in lines_of("model_raises") if (event := read_model_event(line))]
    assert [(event.model, event.state) for event in events] == [
        ("speculative", "loading"),
        ("speculative", "failed"),
    ]


def test_a_loaded_model_is_ready() -> None:
    states = [event.state for line in lines_of("port_taken") if (event := read_model_event(line))]
    assert states == ["loading", "ready"]


def test_only_a_taken_port_is_a_bind_failure() -> None:
    assert is_bind_failure(lines_of("port_taken"))
    assert not is_bind_failure(lines_of("model_raises"))


def test_the_tail_leaves_tables_out() -> None:
    lines = ["first", "+---+", "| a |", "", "second", "third"]
    assert telling_tail(lines, 2) == ["second", "third"]
