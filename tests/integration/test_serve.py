"""serve, ask and stop on a real tritonserver, as a user runs them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from servers import echo_repository

from specdeploy.adapters.procfs import processes_with, read_arguments, read_process
from specdeploy.adapters.server_process import SHARED_MEMORY, identity_variable
from specdeploy.adapters.triton_install import STUB
from specdeploy.core.serving import ServerRecord

pytestmark = pytest.mark.triton

PATIENCE_S = 120.0
# As /proc/net/tcp and tcp6 write 127.0.0.1.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@dataclass
class Finished:
    """A command that has ended."""

    status: int
    out: str
    err: str


@dataclass
class Place:
    """A workspace with a repository in it, and commands on it."""

    root: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.root / ".specdeploy"

    def record(self) -> ServerRecord | None:
        path = self.workspace / "run/server.json"
        return ServerRecord.model_validate_json(path.read_bytes()) if path.exists() else None

    def run(self, *words: str) -> Finished:
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE_S)
        return Finished(process.returncode, out, err)

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "specdeploy", *words],
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    @contextlib.contextmanager
    def serving(self, *words: str) -> Iterator[tuple[subprocess.Popen[str], ServerRecord]]:
        """Serve in the foreground until it is ready; end it and look for what it left."""
        process = self.start("serve", ".specdeploy", *words)
        record = wait_for(lambda: self._ready(process))
        try:
            yield process, record
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=PATIENCE_S)
            self.run("stop")
        assert leftovers(record) == []

    def _ready(self, process: subprocess.Popen[str]) -> ServerRecord | None:
        assert process.poll() is None, process.communicate()
        record = self.record()
        return record if record and record.state == "ready" else None


def wait_for(look: Callable[[], ServerRecord | None]) -> ServerRecord:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    pytest.fail("waited too long")


def leftovers(record: ServerRecord) -> list[str]:
    """Return what is left of a server: processes and shared memory."""
    alive = [str(facts.pid) for facts in processes_with(identity_variable(record.identity))]
    memory = [path.name for path in SHARED_MEMORY.glob(f"{record.identity}-*")]
    return alive + memory


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    echo_repository(place.workspace / "repository")
    yield place
    record = place.record()
    for process in place.started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_S)
    place.run("stop")
    assert record is None or leftovers(record) == []


def broken(place: Place, behaviour: str) -> str:
    """Give the workspace's root a repository that misbehaves, and return its name."""
    echo_repository(place.root / behaviour, behaviour=behaviour)
    return behaviour


def test_a_detached_server_answers_until_it_is_stopped(place: Place) -> None:
    started = place.run("serve", ".specdeploy", "--detach", "--json")
    assert started.status == 0, started.err
    record = ServerRecord.model_validate(json.loads(started.out))
    assert record == place.record()
    assert "speculative: ready" in started.err
    assert record.log in started.err
    assert os.getsid(record.pid) == record.pid
    assert Path(f"/proc/{record.pid}/stat").read_text().split()[6] == "0", "has a terminal"

    answer = place.run("ask", "is anybody there", "--json")
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["text"] == "is anybody there "

    second = place.run("serve", ".specdeploy")
    assert second.status == 8
    assert f"served already, at {record.endpoints.grpc}" in second.err

    stopped = place.run("stop", "--json")
    assert stopped.status == 0, stopped.err
    assert json.loads(stopped.out)["outcome"] == "stopped"
    assert leftovers(record) == []
    assert place.record() is None
    assert place.run("stop").status == 7


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)]
)
def test_a_signal_stops_the_server_in_order(place: Place, number: signal.Signals) -> None:
    with place.serving() as (process, record):
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        assert "killed" not in err
        assert leftovers(record) == []
        assert place.record() is None
    assert "successfully unloaded 'speculative'" in Path(record.log).read_text()


def test_a_killed_serve_leaves_no_server(place: Place) -> None:
    with place.serving() as (process, record):
        process.kill()
        process.wait(timeout=PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while leftovers(record):
            assert time.monotonic() < deadline, leftovers(record)
            time.sleep(0.1)
    assert place.record() is None


def test_a_killed_tritonserver_ends_serve_with_8(place: Place) -> None:
    with place.serving() as (process, record):
        os.kill(record.pid, signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 8
        assert "tritonserver was killed by signal 9" in err
        assert record.log in err
        assert leftovers(record) == []


def test_a_killed_model_process_ends_serve_with_8(place: Place) -> None:
    with place.serving() as (process, record):
        stubs = [
            facts.pid
            for facts in processes_with(identity_variable(record.identity))
            if read_arguments(facts.pid)[0].endswith(STUB)
        ]
        os.kill(stubs[0], signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 8
        assert "the process of model speculative died" in err


def test_stop_ends_a_foreground_serve_in_order(place: Place) -> None:
    with place.serving() as (process, _):
        assert place.run("stop").status == 0
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err


def test_two_servers_run_side_by_side(
    place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Triton's Python backend hands paths to a shell, unquoted.
    other = Place(tmp_path_factory.mktemp("it's the öther place"))
    echo_repository(other.workspace / "repository")
    with place.serving() as (_, first):
        started = other.run("serve", ".specdeploy", "--detach", "--json")
        second = ServerRecord.model_validate(json.loads(started.out))
        assert {*dict(first.endpoints).values()}.isdisjoint(dict(second.endpoints).values())
        assert other.run("ask", "two").out == "two \n"
        assert other.run("stop").status == 0
        assert leftovers(second) == []
        assert place.run("ask", "one").out == "one \n"


def listening() -> Iterator[tuple[str, int]]:
    """Yield every listening TCP address (as /proc writes it) and port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            address, _, port = line.split()[1].partition(":")
            if line.split()[3] == "0A":
                yield address, int(port, 16)


def test_ports_that_were_asked_for_are_served_on_the_loopback_address_only(place: Place) -> None:
    with contextlib.ExitStack() as held:
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        grpc, http, metrics = (server.getsockname()[1] for server in servers)
    ports = {grpc, http, metrics}
    words = [f"--grpc-port={grpc}", f"--http-port={http}", f"--metrics-port={metrics}"]
    with place.serving(*words) as (_, record):
        assert record.endpoints.grpc == f"127.0.0.1:{grpc}"
        bound = [(address, port) for address, port in listening() if port in ports]
    assert {port for _, port in bound} == ports
    assert {address for address, _ in bound} <= LOOPBACK
    assert [port for _, port in listening() if port in ports] == []


def test_a_port_in_use_exits_8_before_anything_starts(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        finished = place.run("serve", ".specdeploy", "--grpc-port", str(port))
    assert finished.status == 8
    assert f"{port} (--grpc-port, held by process {os.getpid()})" in finished.err
    assert place.record() is None


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        ("raise", "failed to load 'speculative' version 1: Internal: ValueError: the weights are"),
        pytest.param("exit", "SystemExit: 3", marks=pytest.mark.full),
        ("die", "Stub process 'speculative_0_0' is not healthy"),
        pytest.param("kill-server", "was killed by signal 9", marks=pytest.mark.full),
        ("empty", "all models are ready, but speculative answers with empty text"),
    ],
)
def test_a_server_that_cannot_serve_exits_8_with_the_cause(
    place: Place, behaviour: str, cause: str
) -> None:
    finished = place.run("serve", broken(place, behaviour))
    assert finished.status == 8
    assert finished.err.partition("error: ")[2].partition("\n")[0].find(cause) >= 0, finished.err
    assert "the log ends with:" in finished.err
    assert "hint: the whole log is in " in finished.err
    assert finished.out == ""
    assert processes_of(place.root) == []


def test_a_model_that_hangs_exits_8_at_the_time_limit(place: Place) -> None:
    finished = place.run("serve", broken(place, "hang"), "--startup-timeout", "3")
    assert finished.status == 8
    assert "not ready after 3 s" in finished.err
    assert processes_of(place.root) == []


def processes_of(root: Path) -> list[int]:
    """Return the living processes that were called with a path below ``root``."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if str(root) in " ".join(read_arguments(pid)) and read_process(pid)]


def test_an_interrupt_while_loading_exits_130_and_leaves_nothing(place: Place) -> None:
    process = place.start("serve", broken(place, "hang"))
    record = wait_for(place.record)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert leftovers(record) == []


def test_a_changed_repository_is_not_served(place: Place) -> None:
    config = place.workspace / "repository/speculative/config.pbtxt"
    config.write_text(config.read_text() + "\n")
    finished = place.run("serve", ".specdeploy")
    assert finished.status == 7
    assert "is not as it was built: speculative/config.pbtxt" in finished.err


def test_a_workspace_without_a_repository_is_told_to_build(place: Place) -> None:
    (place.root / "specdeploy.yaml").write_text("target: {path: t}\nworkspace: nothing\n")
    finished = place.run("serve", "specdeploy.yaml")
    assert finished.status == 7
    assert "specdeploy build" in finished.err


def test_a_repository_of_other_settings_is_not_served(place: Place) -> None:
    (place.root / "specdeploy.yaml").write_text("target: {path: t}\nmethod: ngram\n")
    finished = place.run("serve")
    assert finished.status == 7
    assert "was built with method none, and method is now ngram" in finished.err


def test_a_server_that_died_detached_is_cleaned_up_by_stop(place: Place) -> None:
    started = place.run("serve", ".specdeploy", "--detach", "--json")
    record = ServerRecord.model_validate(json.loads(started.out))
    os.kill(record.pid, signal.SIGKILL)
    asked = place.run("ask", "hello")
    assert asked.status == 8
    assert "is gone" in asked.err
    stopped = place.run("stop")
    assert (stopped.status, leftovers(record)) == (0, [])
    assert "was gone already" in stopped.out
