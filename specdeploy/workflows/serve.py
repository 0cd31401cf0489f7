"""Serve a repository: start, prove that it answers, watch, stop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from specdeploy.core.artifacts import REPOSITORY_RECORD, compare_files
from specdeploy.core.generation import GenerationOptions
from specdeploy.core.repository import ModelRepository
from specdeploy.core.resolution import LoadedConfig, shape_of
from specdeploy.core.server_log import (
    find_cause,
    is_bind_failure,
    read_model_event,
    telling_tail,
)
from specdeploy.core.serving import LaunchSpec, ServerRecord
from specdeploy.errors import ArtifactError, ServerError
from specdeploy.events import Reporter
from specdeploy.failure import undone_on_failure
from specdeploy.workflows.ports import Artifacts
from specdeploy.workflows.server_ports import (
    Clock,
    ConnectToServer,
    RunningServer,
    ServedModels,
    ServerLauncher,
    ServerRecords,
    StopSwitch,
)

POLL_S: Final = 0.1
HEALTH_TIMEOUT_S: Final = 2.0
PORT_ATTEMPTS: Final = 3
TAIL_LINES: Final = 12

# A model may end at once after one of these; a server that answers none of them is broken.
PROBES: Final = ("The quick brown fox", "def main():\n    ", "Once upon a time")
PROBE_OPTIONS: Final = GenerationOptions(max_tokens=8)


class PortTakenError(ServerError):
    """Somebody bound a port between our choosing it and the server's binding it."""


@final
class NeverStopped:
    """A switch that nobody presses; Ctrl-C arrives as KeyboardInterrupt."""

    pressed = False
    pressed_again = False

    @contextlib.contextmanager
    def breaking(self) -> Iterator[None]:
        """Let nothing end what runs inside."""
        yield


@dataclass(frozen=True, slots=True)
class ServeTools:
    """What serving needs from the outside world."""

    launcher: ServerLauncher
    connect: ConnectToServer
    records: ServerRecords
    clock: Clock
    reporter: Reporter
    stop: StopSwitch


def check_repository(directory: Path, artifacts: Artifacts) -> ModelRepository:
    """Return the repository's record after comparing every file with it.

    Raises:
        ArtifactError: it was not built, a file differs, or a path that its files name is gone.
    """
    if not directory.is_dir():
        raise ArtifactError(f"{directory} is not there", hint="build it: specdeploy build")
    described = artifacts.read_repository(directory)
    differences = list(
        compare_files(described.files, artifacts.entries(directory, without=REPOSITORY_RECORD))
    )
    if differences:
        first = differences[0]
        raise ArtifactError(
            f"{directory} is not as it was built: {first.path}: {first.message}"
            + (f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""),
            hint="specdeploy build renders it again; specdeploy verify lists every difference",
        )
    for path in described.absolute_paths:
        if not artifacts.exists(path):
            raise ArtifactError(
                f"{directory} needs {path}, which is gone", hint="build it again: specdeploy build"
            )
    return described


def require_current(described: ModelRepository, loaded: LoadedConfig) -> None:
    """Refuse a repository that was built before the settings changed.

    Raises:
        ArtifactError: names the first setting that differs.
    """
    config = loaded.config
    wanted: dict[str, object] = {
        "runtime.name": config.runtime.name,
        "runtime.shape": shape_of(config),
        "method": config.method,
    }
    built: dict[str, object] = {
        "runtime.name": described.runtime,
        "runtime.shape": described.shape,
        "method": described.method,
    }
    if isinstance(config.draft_length, int) and config.method != "none":
        wanted["draft_length"], built["draft_length"] = config.draft_length, described.draft_length
    for key, value in wanted.items():
        if value != built[key]:
            raise ArtifactError(
                f"the repository was built with {key} {built[key]}, and {key} is now {value} "
                f"({loaded.source(key)})",
                hint="build it again: specdeploy build",
            )


def serve(spec: LaunchSpec, tools: ServeTools, *, on_ready: Callable[[ServerRecord], None]) -> None:
    """Serve until told to stop, then end the server in order.

    Args:
        spec: What to serve; with ``outlives_us`` the server is left running once it is ready.
        tools: The outside world.
        on_ready: Called once, with the record of the server that has answered.

    Raises:
        ServerError: it did not start, was not ready in time, or died; or one runs already.
        KeyboardInterrupt: told to stop before it was ready.
    """
    with tools.records.lock():
        _refuse_second(tools)
        server = start(spec, tools)
        with undone_on_failure(lambda: _abandon(server, tools)):
            ready = server.record.evolve(state="ready")
            tools.records.write(ready)
            on_ready(ready)
            if spec.outlives_us:
                return
            watch(server, tools)
        finish(server, tools)


def start(spec: LaunchSpec, tools: ServeTools) -> RunningServer:
    """Start a server and return it once it has answered a request.

    Raises:
        ServerError: with the cause and the log's last lines; nothing is left running.
    """
    return _start(spec, tools, attempts=1 if spec.ports.chosen else PORT_ATTEMPTS)


def _start(spec: LaunchSpec, tools: ServeTools, *, attempts: int) -> RunningServer:
    try:
        return _start_once(spec, tools)
    except PortTakenError:
        if attempts == 1:
            raise
        tools.reporter.note("a port was taken meanwhile; choosing others")
        return _start(spec, tools, attempts=attempts - 1)


def watch(server: RunningServer, tools: ServeTools) -> None:
    """Return when told to stop.

    Raises:
        ServerError: the server, or the process of one of its models, ended by itself.
    """
    while not tools.stop.pressed:
        _tell_log(server, tools)
        try:
            _require_alive(server)
            _require_models(server)
        except ServerError:
            if _stopped_by_command(server, tools):
                return
            raise
        tools.clock.sleep(POLL_S)


def finish(server: RunningServer, tools: ServeTools) -> None:
    """End a server and forget it."""
    if server.exit_status() is None:
        tools.reporter.note("stopping the server")
    if not server.stop(hurry=lambda: tools.stop.pressed_again):
        tools.reporter.warning("the server did not stop in order and was killed")
    tools.records.remove(server.record)


def _refuse_second(tools: ServeTools) -> None:
    record = tools.records.read()
    if record is None:
        return
    if tools.launcher.is_running(record):
        raise ServerError(
            f"this workspace is served already, at {record.endpoints.grpc} (pid {record.pid})",
            hint="stop it with: specdeploy stop; or use another --workspace",
        )
    tools.reporter.note(f"the server with pid {record.pid} is gone; removing what it left")
    tools.launcher.stop_recorded(record, patience_s=0)
    tools.records.remove(record)


def _start_once(spec: LaunchSpec, tools: ServeTools) -> RunningServer:
    log = tools.records.next_log()
    server = tools.launcher.launch(spec, log=log)
    with undone_on_failure(lambda: _abandon(server, tools)):
        tools.records.write(server.record)
        tools.reporter.note(f"tritonserver (pid {server.record.pid}) writes to {log}")
        deadline = tools.clock.now() + spec.startup_timeout_s
        _await_ready(server, tools, limit_s=spec.startup_timeout_s)
        _require_answer(server, tools, deadline=deadline)
        server.lost_models()
    return server


def _abandon(server: RunningServer, tools: ServeTools) -> None:
    """End at once a server that serves nobody yet, or no longer can."""
    server.stop(hurry=lambda: True)
    tools.records.remove(server.record)


def _await_ready(server: RunningServer, tools: ServeTools, *, limit_s: float) -> None:
    started = tools.clock.now()
    while not _is_ready(server, tools):
        if tools.stop.pressed or _stopped_by_command(server, tools):
            raise KeyboardInterrupt
        _tell_log(server, tools, started=started)
        _require_alive(server)
        if tools.clock.now() - started >= limit_s:
            raise _failure(server, f"not ready after {limit_s:g} s")
        tools.clock.sleep(POLL_S)
    _tell_log(server, tools, started=started)


def _is_ready(server: RunningServer, tools: ServeTools) -> bool:
    record = server.record
    client = tools.connect(
        record.endpoints.grpc, timeout_s=HEALTH_TIMEOUT_S, model=record.entry_model
    )
    try:
        health = client.health()
    except ServerError:
        return False
    finally:
        client.close()
    states = {model.name: model.state for model in health.models}
    # Another server may have got the port first: the identity tells.
    ours = health.identity == record.identity
    return ours and health.ready and all(states.get(name) == "READY" for name in record.models)


def _require_answer(server: RunningServer, tools: ServeTools, *, deadline: float) -> None:
    """Refuse a server that is READY and cannot answer, which happens."""
    record = server.record
    remaining = max(deadline - tools.clock.now(), HEALTH_TIMEOUT_S)
    client = tools.connect(record.endpoints.grpc, timeout_s=remaining, model=record.entry_model)
    try:
        if any(_answer(client, prompt, tools.stop) for prompt in PROBES):
            return
    except ServerError as error:
        raise _failure(server, f"all models are ready, but a first request failed: {error}") from (
            error
        )
    finally:
        client.close()
    raise _failure(
        server, f"all models are ready, but {record.entry_model} answers with empty text"
    )


def _answer(client: ServedModels, prompt: str, stop: StopSwitch) -> str:
    with stop.breaking():
        return client.generate(prompt, PROBE_OPTIONS).text


def _tell_log(server: RunningServer, tools: ServeTools, *, started: float | None = None) -> None:
    for line in server.new_log_lines():
        tools.reporter.command_output(line)
        event = read_model_event(line)
        if event and started is not None:
            seconds = tools.clock.now() - started
            tools.reporter.model_state(event.model, event.state, seconds=seconds)


def _require_alive(server: RunningServer) -> None:
    status = server.exit_status()
    if status is None:
        return
    ending = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
    lines = server.log_lines()
    if is_bind_failure(lines):
        raise PortTakenError(_with_tail(server, f"{find_cause(lines)}"))
    raise _failure(server, f"tritonserver {ending}")


def _require_models(server: RunningServer) -> None:
    if lost := server.lost_models():
        raise _failure(server, f"the process of model {', '.join(lost)} died")


def _stopped_by_command(server: RunningServer, tools: ServeTools) -> bool:
    record = tools.records.read()
    return record is None or (record.pid, record.state) == (server.record.pid, "stopping")


def _failure(server: RunningServer, what: str) -> ServerError:
    cause = find_cause(server.log_lines())
    return ServerError(
        _with_tail(server, f"{what}: {cause}" if cause else what),
        hint=f"the whole log is in {server.record.log}",
    )


def _with_tail(server: RunningServer, message: str) -> str:
    tail = "\n".join(f"  | {line}" for line in telling_tail(server.log_lines(), TAIL_LINES))
    return f"{message}\nthe log ends with:\n{tail}"
