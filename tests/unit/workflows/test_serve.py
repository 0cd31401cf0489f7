from __future__ import annotations

import pytest
from server_doubles import (
    FakeServer,
    ServingWorld,
    a_record,
    serving_world,
)

from specdeploy.core.repository import ModelRepository
from specdeploy.core.serving import LaunchSpec, Ports, ServerRecord
from specdeploy.errors import ServerError
from specdeploy.workflows.serve import serve, start

DESCRIBED = ModelRepository(
    runtime="reference",
    shape="engine",
    method="draft_target",
    models=["speculative"],
    entry_model="speculative",
    streaming=True,
    draft_length=4,
    plan_digest="",
    files=[],
)
SPEC = LaunchSpec(
    repository="/repository", description=DESCRIBED, state_directory="/s", startup_timeout_s=10
)
LOADING = 'I1 model_lifecycle.cc:472] "loading: speculative:1"'
READY = "I1 model_lifecycle.cc:839] \"successfully loaded 'speculative'\""
FAILED = (
    "E1 model_lifecycle.cc:642] \"failed to load 'speculative' version 1: Internal: no weights\""
)
TAKEN = "E1 main.cc:245] \"failed to start GRPC service: Socket '127.0.0.1:1' already in use \""


def serve_until_ready(world: ServingWorld, spec: LaunchSpec = SPEC) -> list[ServerRecord]:
    """Serve, press the switch once it is ready, and return what it was ready with."""
    seen: list[ServerRecord] = []

    def on_ready(record: ServerRecord) -> None:
        seen.append(record)
        world.switch.pressed = True

    serve(spec, world.tools, on_ready=on_ready)
    return seen


def test_a_ready_server_is_recorded_and_stopped_in_order_when_told() -> None:
    server = FakeServer()
    world = serving_world(server)
    (record,) = serve_until_ready(world)
    assert record.state == "ready"
    assert world.records.history == ["starting", "ready", "removed"]
    assert server.stopped == ["in order"]


def test_the_progress_of_every_model_and_the_logs_place_are_told() -> None:
    world = serving_world(FakeServer([LOADING, READY], ready_after=3))
    serve_until_ready(world)
    assert world.reporter.told[:3] == [
        "tritonserver (pid 4242) writes to /log",
        "speculative: loading",
        "speculative: ready",
    ]


def test_a_server_that_exits_fails_with_cause_and_tail_and_log() -> None:
    world = serving_world(FakeServer([LOADING, FAILED], status=1, ready_after=99))
    with pytest.raises(ServerError) as caught:
        start(SPEC, world.tools)
    message = str(caught.value)
    assert message.startswith(
        "tritonserver exited with status 1: failed to load 'speculative' version 1: "
        "Internal: no weights\n"
    )
    assert f"  | {FAILED}" in message
    assert caught.value.hint == "the whole log is in /log"


def test_a_server_that_was_killed_is_told_by_its_signal() -> None:
    world = serving_world(FakeServer([LOADING], status=-9, ready_after=99))
    with pytest.raises(ServerError, match="was killed by signal 9"):
        start(SPEC, world.tools)


def test_a_server_that_is_never_ready_fails_at_the_time_limit() -> None:
    server = FakeServer([LOADING], ready_after=99)
    world = serving_world(server)
    with pytest.raises(ServerError, match="not ready after 10 s"):
        start(SPEC, world.tools)
    assert server.stopped == ["killed"]
    assert world.records.record is None


def test_a_ready_server_that_answers_nothing_fails() -> None:
    server = FakeServer(answers=["", "", ""])
    with pytest.raises(ServerError, match="speculative answers with empty text"):
        start(SPEC, serving_world(server).tools)
    assert server.stopped == ["killed"]


def test_one_answer_of_several_is_enough() -> None:
    """A model may end at once after one prompt and not after another."""
    server = FakeServer(answers=["", "text"])
    assert start(SPEC, serving_world(server).tools) is server


def test_a_ready_server_whose_answer_is_an_error_fails_with_it() -> None:
    server = FakeServer(answers=[ServerError("Stub process is not healthy")])
    with pytest.raises(ServerError, match="first request failed: Stub process is not healthy"):
        start(SPEC, serving_world(server).tools)


def test_another_server_on_our_port_is_not_ours() -> None:
    server = FakeServer([LOADING], identity="somebody else")
    with pytest.raises(ServerError, match="not ready after 10 s"):
        start(SPEC, serving_world(server).tools)


def test_a_port_taken_meanwhile_is_replaced_by_another() -> None:
    first = FakeServer([TAKEN], status=1, ready_after=99)
    second = FakeServer()
    world = serving_world(first, second)
    assert start(SPEC, world.tools) is second
    assert first.stopped == ["killed"]


def test_ports_are_not_replaced_for_ever() -> None:
    servers = [FakeServer([TAKEN], status=1, ready_after=99) for _ in range(9)]
    world = serving_world(*servers)
    with pytest.raises(ServerError, match="already in use"):
        start(SPEC, world.tools)
    assert len(world.launcher.specs) == 3


def test_a_port_that_was_asked_for_is_not_replaced() -> None:
    world = serving_world(FakeServer([TAKEN], status=1, ready_after=99), FakeServer())
    with pytest.raises(ServerError, match="already in use"):
        start(SPEC.evolve(ports=Ports(grpc=1)), world.tools)


def test_a_server_that_dies_while_serving_fails() -> None:
    server = FakeServer()
    world = serving_world(server)

    def die(seconds: float) -> None:
        del seconds
        server.status = -11

    world.clock.on_sleep = die
    with pytest.raises(ServerError, match="was killed by signal 11"):
        serve(SPEC, world.tools, on_ready=lambda _: None)
    assert world.records.record is None


def test_a_model_process_that_dies_while_serving_fails() -> None:
    """Triton itself goes on calling the model ready."""
    server = FakeServer(lost=["tensorrt_llm_draft"])
    with pytest.raises(ServerError, match="the process of model tensorrt_llm_draft died"):
        serve(SPEC, serving_world(server).tools, on_ready=lambda _: None)
    assert server.stopped == ["killed"]


def test_a_server_that_specdeploy_stop_ends_is_no_failure() -> None:
    server = FakeServer()
    world = serving_world(server)

    def stop_from_elsewhere(seconds: float) -> None:
        del seconds
        world.records.write(server.record.evolve(state="stopping"))
        server.status = 0

    world.clock.on_sleep = stop_from_elsewhere
    serve(SPEC, world.tools, on_ready=lambda _: None)
    assert world.records.record is None


def test_a_detached_server_is_left_running_and_recorded() -> None:
    server = FakeServer()
    world = serving_world(server)
    serve(SPEC.evolve(outlives_us=True), world.tools, on_ready=lambda _: None)
    assert server.stopped == []
    assert world.records.record is not None
    assert world.records.record.state == "ready"


def test_a_second_server_for_the_workspace_is_refused_with_the_address() -> None:
    world = serving_world(FakeServer())
    world.records.record = a_record()
    world.launcher.alive = {4242}
    with pytest.raises(ServerError, match=r"served already, at 127\.0\.0\.1:1 \(pid 4242\)"):
        serve(SPEC, world.tools, on_ready=lambda _: None)
    assert world.launcher.specs == []


def test_what_a_dead_server_left_is_removed_before_the_next() -> None:
    world = serving_world(FakeServer())
    world.records.record = stale = a_record(pid=1)
    serve_until_ready(world)
    assert world.launcher.stopped == [stale]


def test_being_told_to_stop_while_loading_is_an_interrupt() -> None:
    server = FakeServer([LOADING], ready_after=99)
    world = serving_world(server)
    world.switch.pressed = True
    with pytest.raises(KeyboardInterrupt):
        serve(SPEC, world.tools, on_ready=lambda _: None)
    assert server.stopped == ["killed"]
    assert world.records.record is None


def test_specdeploy_stop_while_loading_is_an_interrupt_and_no_failure() -> None:
    server = FakeServer([LOADING, LOADING], ready_after=99, status=0)
    world = serving_world(server)

    def stop(seconds: float) -> None:
        del seconds
        world.records.write(server.record.evolve(state="stopping"))

    world.clock.on_sleep = stop
    with pytest.raises(KeyboardInterrupt):
        serve(SPEC, world.tools, on_ready=lambda _: None)
    assert server.stopped == ["killed"]


def test_being_told_twice_kills_at_once() -> None:
    server = FakeServer()
    world = serving_world(server)
    world.switch.pressed_again = True
    serve_until_ready(world)
    assert server.stopped == ["killed"]
    assert "the server did not stop in order and was killed" in world.reporter.told


def test_a_failure_to_show_the_addresses_stops_the_server() -> None:
    def broken_pipe(record: ServerRecord) -> None:
        del record
        raise BrokenPipeError

    server = FakeServer()
    with pytest.raises(BrokenPipeError):
        serve(SPEC, serving_world(server).tools, on_ready=broken_pipe)
    assert server.stopped == ["killed"]
