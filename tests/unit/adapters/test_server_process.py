from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specdeploy.adapters.procfs import read_arguments, read_process
from specdeploy.adapters.server_process import (
    SHARED_MEMORY,
    ServerProcesses,
    identity_variable,
    plain_path,
    process_start_time,
    remove_shared_memory,
    start_process,
)
from specdeploy.core.serving import Endpoints, ServerRecord
from specdeploy.errors import MissingToolError

# A leader with a child in a session of its own; both run until they are told to end.
FAMILY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.{leader})
child = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(child, start_new_session=True)
print(child.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Callable[..., ServerRecord]]:
    records: list[ServerRecord] = []

    def begin(*, leader: str = "SIG_DFL") -> ServerRecord:
        record = started(tmp_path / "log", FAMILY.format(leader=leader))
        records.append(record)
        wait_until(lambda: Path(record.log).read_text())
        return record

    yield begin
    for record in records:
        ServerProcesses(record).stop(0, hurry=lambda: True)


def started(log: Path, program: str, *, outlives_us: bool = True) -> ServerRecord:
    identity = f"specdeploy-test-{secrets.token_hex(4)}"
    name, _, value = identity_variable(identity).partition("=")
    child = start_process(
        [sys.executable, "-c", program],
        environment={**os.environ, name: value},
        log=log,
        outlives_us=outlives_us,
    )
    CHILDREN.append(child)
    return ServerRecord(
        endpoints=Endpoints(grpc="", http="", metrics=""),
        pid=child.pid,
        process_started=process_start_time(child.pid) or 0.0,
        identity=identity,
        repository="",
        shape="engine",
        method="none",
        entry_model="",
        models=[],
        streaming=True,
        draft_length=0,
        log=str(log),
    )


# Kept so that the interpreter reaps them and warns about none.
CHILDREN: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def reaped() -> Iterator[None]:
    yield
    while CHILDREN:
        CHILDREN.pop().wait(timeout=30)


def wait_until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_every_process_of_a_server_is_found_wherever_it_moved(
    family: Callable[..., ServerRecord],
) -> None:
    record = family()
    child = int(Path(record.log).read_text())
    assert {facts.pid for facts in ServerProcesses(record).members()} == {record.pid, child}


def test_stopping_ends_the_children_that_the_leader_leaves(
    family: Callable[..., ServerRecord],
) -> None:
    record = family()
    processes = ServerProcesses(record)
    assert processes.stop(0.2, hurry=lambda: False) is False
    assert processes.members() == []


def test_a_leader_that_ignores_sigterm_is_killed(family: Callable[..., ServerRecord]) -> None:
    record = family(leader="SIG_IGN")
    assert ServerProcesses(record).stop(0.2, hurry=lambda: False) is False
    assert read_process(record.pid) is None


def test_hurry_ends_the_patience(family: Callable[..., ServerRecord]) -> None:
    record = family(leader="SIG_IGN")
    assert ServerProcesses(record).stop(3600, hurry=lambda: True) is False
    assert read_process(record.pid) is None


def test_a_leader_that_ends_in_order_is_not_killed(tmp_path: Path) -> None:
    record = started(tmp_path / "log", "import time; time.sleep(600)")
    assert ServerProcesses(record).stop(30, hurry=lambda: False) is True


def test_a_process_that_reuses_the_pid_is_left_alone(family: Callable[..., ServerRecord]) -> None:
    record = family()
    stale = record.evolve(process_started=record.process_started - 1, identity="specdeploy-gone")
    assert ServerProcesses(stale).stop(0, hurry=lambda: False) is True
    assert read_process(record.pid) is not None


def test_a_server_has_its_own_session_and_no_terminal(tmp_path: Path) -> None:
    record = started(tmp_path / "log", "import time; time.sleep(600)")
    assert os.getsid(record.pid) == record.pid
    assert os.readlink(f"/proc/{record.pid}/fd/0") == "/dev/null"  # noqa: PTH115 - not a file
    ServerProcesses(record).stop(0, hurry=lambda: True)


ORPHAN = """
import os, sys, time
from pathlib import Path
from specdeploy.adapters.server_process import start_process
log = Path(sys.argv[1])
argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
child = start_process(argv, environment=os.environ, log=log, outlives_us=False)
while not log.read_text():
    time.sleep(0.02)
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_server_ends_when_what_started_it_is_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", ORPHAN, str(tmp_path / "log")]
    finished = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert finished.returncode == -signal.SIGKILL
    wait_until(lambda: read_process(int(finished.stdout)) is None)


def test_a_detached_server_outlives_what_started_it(tmp_path: Path) -> None:
    program = ORPHAN.replace("outlives_us=False", "outlives_us=True")
    argv = [sys.executable, "-c", program, str(tmp_path / "log")]
    finished = subprocess.run(argv, capture_output=True, text=True, check=False)
    pid = int(finished.stdout)
    assert read_process(pid) is not None
    os.kill(pid, signal.SIGKILL)


def test_a_program_that_cannot_run_is_a_missing_tool(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="cannot run /nowhere/tritonserver"):
        start_process(
            ["/nowhere/tritonserver"], environment={}, log=tmp_path / "log", outlives_us=True
        )


def test_a_zombie_counts_as_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    wait_until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z")
    assert read_process(child.pid) is None
    child.wait()


def test_a_process_name_with_brackets_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a) b (c"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as child:
        wait_until(lambda: read_arguments(child.pid)[-1:] == ["600"])
        facts = read_process(child.pid)
        child.kill()
    assert facts is not None
    assert facts.started > 0


def test_only_shared_memory_of_the_server_is_removed() -> None:
    mine, other = (SHARED_MEMORY / f"specdeploy-test-{secrets.token_hex(4)}" for _ in range(2))
    mine.with_name(f"{mine.name}-a").touch()
    other.touch()
    remove_shared_memory(f"{mine.name}-")
    assert list(mine.parent.glob(f"{mine.name}*")) == []
    other.unlink()


@pytest.mark.parametrize("name", ["with space", "wörk", "a;b", "$(c)"])
def test_a_path_that_is_no_word_of_a_shell_gets_a_link_that_goes_with_the_memory(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    prefix = f"specdeploy-test-{os.getpid()}-"
    link = Path(plain_path(str(tmp_path / name), alias=f"{prefix}repository"))
    assert (link.name, link.resolve()) == (f"{prefix}repository", tmp_path / name)
    remove_shared_memory(prefix)
    assert not link.is_symlink()
    assert (tmp_path / name).is_dir()


def test_a_path_that_is_a_word_of_a_shell_stays_as_it_is() -> None:
    assert plain_path("/srv/pair_1/repository", alias="unused") == "/srv/pair_1/repository"
