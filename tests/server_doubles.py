"""Fakes of what serving needs from the outside world."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specdeploy.core.generation import Counts, GenerationOptions, GenerationResult
from specdeploy.core.serving import (
    Endpoints,
    LaunchSpec,
    ModelStatus,
    ServerHealth,
    ServerRecord,
)
from specdeploy.errors import ServerError
from specdeploy.events import Reporter
from specdeploy.workflows.serve import ServeTools


def a_record(**changes: object) -> ServerRecord:
    record = ServerRecord(
        endpoints=Endpoints(grpc="127.0.0.1:1", http="127.0.0.1:2", metrics="127.0.0.1:3"),
        pid=4242,
        process_started=1.0,
        identity="specdeploy-fake",
        repository="/repository",
        shape="engine",
        method="draft_target",
        entry_model="speculative",
        models=["speculative"],
        streaming=True,
        draft_length=4,
        log="/log",
    )
    return record.evolve(**changes)


@dataclass
class FakeServer:
    """A server whose log grows by one entry of ``logged`` per look.

    It ends with ``status`` once it has no more to log, when ``status`` is given.
    """

    logged: Sequence[str] = ()
    status: int | None = None
    lost: Sequence[str] = ()
    answers: Sequence[str | ServerError] = ("text",)
    ready_after: int = 0
    identity: str = "specdeploy-fake"
    record: ServerRecord = field(default_factory=lambda: a_record(state="starting"))
    stopped: list[str] = field(default_factory=list)
    _seen: int = 0
    _asked: int = 0
    _looked: int = 0

    def exit_status(self) -> int | None:
        return self.status if self._seen >= len(self.logged) else None

    def lost_models(self) -> list[str]:
        return list(self.lost) if self._asked else []

    def new_log_lines(self) -> list[str]:
        self._seen += 1
        return list(self.logged[self._seen - 1 : self._seen])

    def log_lines(self) -> list[str]:
        return list(self.logged)

    def stop(self, *, hurry: Callable[[], bool]) -> bool:
        self.stopped.append("killed" if hurry() else "in order")
        return not hurry()

    def health(self) -> ServerHealth:
        self._looked += 1
        if self._looked <= self.ready_after:
            raise ServerError("not listening yet")
        models = [ModelStatus(name="speculative", state="READY")]
        return ServerHealth(identity=self.identity, version="0", ready=True, models=models)

    def generate(self, prompt: str, options: GenerationOptions) -> GenerationResult:
        answer = self.answers[min(self._asked, len(self.answers) - 1)]
        self._asked += 1
        if isinstance(answer, ServerError):
            raise answer
        return GenerationResult(
            model="speculative",
            prompt=prompt,
            text=answer,
            counts=Counts(output_tokens=options.max_tokens),
            chunks=[],
            sent_s=0.0,
            finished_s=1.0,
        )

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class FakeLauncher:
    """Hands out the given servers, one a launch; ``alive`` are running pids."""

    servers: list[FakeServer]
    alive: set[int] = field(default_factory=set)
    specs: list[LaunchSpec] = field(default_factory=list)
    stopped: list[ServerRecord] = field(default_factory=list)

    def launch(self, spec: LaunchSpec, *, log: Path) -> FakeServer:
        del log
        self.specs.append(spec)
        return self.servers[len(self.specs) - 1]

    def is_running(self, record: ServerRecord) -> bool:
        return record.pid in self.alive

    def stop_recorded(self, record: ServerRecord, *, patience_s: float) -> bool:
        del patience_s
        self.stopped.append(record)
        return self.is_running(record)


@dataclass
class FakeRecords:
    """A workspace's record in memory, and every state it went through."""

    record: ServerRecord | None = None
    history: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        yield

    def read(self) -> ServerRecord | None:
        return self.record

    def write(self, record: ServerRecord) -> None:
        self.record = record
        self.history.append(record.state)

    def remove(self, record: ServerRecord) -> None:
        if not record.is_of(self.record):
            return
        self.record = None
        self.history.append("removed")

    def next_log(self) -> Path:
        return Path("/log")


@dataclass
class FakeClock:
    """A second passes with every sleep, however short; nobody waits for more than 1,000."""

    seconds: float = 0.0
    on_sleep: Callable[[float], None] = lambda _: None

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        del seconds
        self.seconds += 1.0
        assert self.seconds < 1000, "waited too long"
        self.on_sleep(self.seconds)


@dataclass
class FakeSwitch:
    """A switch that tests press."""

    pressed: bool = False
    pressed_again: bool = False

    @contextlib.contextmanager
    def breaking(self) -> Iterator[None]:
        if self.pressed:
            raise KeyboardInterrupt
        yield


@dataclass
class RecordingReporter(Reporter):
    """Keeps what it is told."""

    told: list[str] = field(default_factory=list)

    def note(self, message: str) -> None:
        self.told.append(message)

    def warning(self, message: str) -> None:
        self.told.append(message)

    def model_state(self, model: str, state: str, *, seconds: float) -> None:
        del seconds
        self.told.append(f"{model}: {state}")


@dataclass
class ServingWorld:
    """Every fake, and the tools made of them."""

    launcher: FakeLauncher
    records: FakeRecords = field(default_factory=FakeRecords)
    clock: FakeClock = field(default_factory=FakeClock)
    switch: FakeSwitch = field(default_factory=FakeSwitch)
    reporter: RecordingReporter = field(default_factory=RecordingReporter)

    @property
    def tools(self) -> ServeTools:
        return ServeTools(
            launcher=self.launcher,
            connect=self._connect,
            records=self.records,
            clock=self.clock,
            stop=self.switch,
            reporter=self.reporter,
        )

    def _connect(self, url: str, *, timeout_s: float, model: str | None) -> FakeServer:
        del url, timeout_s, model
        return self.launcher.servers[len(self.launcher.specs) - 1]


def serving_world(*servers: FakeServer) -> ServingWorld:
    return ServingWorld(FakeLauncher(list(servers)))
