"""Launches tritonserver and holds on to it until every trace of it is gone."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, final

from specdeploy.adapters.ports import choose_ports
from specdeploy.adapters.procfs import read_arguments, read_process
from specdeploy.adapters.server_process import (
    IDENTITY_NAME,
    ServerProcesses,
    plain_path,
    process_start_time,
    remove_shared_memory,
    start_process,
)
from specdeploy.adapters.triton_install import (
    STUB,
    TritonInstall,
    find_tritonserver,
    prepare_backends,
    server_environment,
)
from specdeploy.core.serving import (
    LaunchSpec,
    Ports,
    ServerArguments,
    ServerRecord,
    endpoints_of,
    shared_memory_prefix,
    triton_arguments,
)
from specdeploy.failure import undone_on_failure

# tritonserver counts its exit timeout twice (requests in flight, unloading models) and looks
# once a second.
_STOP_MARGIN_S: Final = 3.0
_GAVE_UP: Final = b"Exit timeout expired"
_TAIL_BYTES: Final = 4096


@final
class TritonServer:
    """A tritonserver that was launched here."""

    def __init__(
        self, spec: LaunchSpec, record: ServerRecord, child: subprocess.Popen[bytes]
    ) -> None:
        self.record = record
        self._patience_s = 2 * spec.stop_timeout_s + _STOP_MARGIN_S
        self._child = child
        self._log_read = 0
        self._stubs: dict[int, str] | None = None

    def exit_status(self) -> int | None:
        """Return the status it ended with (negative: a signal), or None while it lives."""
        return self._child.poll()

    def log_lines(self) -> list[str]:
        """Return every line of the log so far."""
        return self._read_log(0).decode("utf-8", errors="replace").splitlines()

    def new_log_lines(self) -> list[str]:
        """Return the complete lines that were written since the last call."""
        fresh = self._read_log(self._log_read)
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._log_read += len(whole)
        return whole.decode("utf-8", errors="replace").splitlines()

    def _read_log(self, start: int) -> bytes:
        """Return the log from a byte on; nothing once somebody has cleared the logs away."""
        try:
            with Path(self.record.log).open("rb") as log:
                log.seek(start)
                return log.read()
        except OSError:
            return b""

    def lost_models(self) -> list[str]:
        """Return the models whose process has ended since the first call.

        Triton itself goes on calling such a model ready.
        """
        if self._stubs is None:
            members = ServerProcesses(self.record).members()
            named = {facts.pid: _model_of(read_arguments(facts.pid)) for facts in members}
            self._stubs = {pid: model for pid, model in named.items() if model}
        return sorted({model for pid, model in self._stubs.items() if read_process(pid) is None})

    def stop(self, *, hurry: Callable[[], bool]) -> bool:
        """End it in order, else by force; leaves no process and no shared memory.

        Args:
            hurry: Once it returns True, what is left is killed.

        Returns:
            True when nothing had to be killed.
        """
        in_order = _stop(self.record, patience_s=self._patience_s, hurry=hurry)
        self._child.wait()
        return in_order


@final
class TritonLauncher:
    """Starts tritonserver on this machine."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def launch(self, spec: LaunchSpec, *, log: Path) -> TritonServer:
        """Start a server and return at once, long before it is ready.

        Raises:
            MissingToolError: there is no tritonserver, or none for this Python.
            ServerError: a port that was asked for is in use.
            ConfigError: one port was asked for twice, or a folder cannot be written.
        """
        install = find_tritonserver(self._environment)
        backends = prepare_backends(install, Path(spec.state_directory))
        ports = choose_ports(spec.ports)
        identity = f"specdeploy-{secrets.token_hex(6)}"
        with undone_on_failure(lambda: remove_shared_memory(shared_memory_prefix(identity))):
            child = start_process(
                [str(install.executable), *_arguments(spec, identity, ports, backends)],
                environment=self._environment_of(spec, install, identity),
                log=log,
                outlives_us=spec.outlives_us,
            )
        return TritonServer(spec, _record(spec, ports, identity, log, child.pid), child)

    def _environment_of(
        self, spec: LaunchSpec, install: TritonInstall, identity: str
    ) -> dict[str, str]:
        extra = {**spec.description.environment, **spec.environment, IDENTITY_NAME: identity}
        return server_environment(install, self._environment, extra)

    def is_running(self, record: ServerRecord) -> bool:
        """Tell whether the recorded process lives; one that reuses its pid does not count."""
        return process_start_time(record.pid) == record.process_started

    def stop_recorded(self, record: ServerRecord, *, patience_s: float) -> bool:
        """End the server that ``record`` describes, and remove its shared memory.

        A process that merely has the recorded pid is left alone.

        Returns:
            True when it was running.
        """
        running = self.is_running(record)
        _stop(record, patience_s=patience_s, hurry=lambda: not running)
        return running


def _arguments(spec: LaunchSpec, identity: str, ports: Ports, backends: Path | None) -> list[str]:
    prefix = shared_memory_prefix(identity)
    return triton_arguments(
        ServerArguments(
            identity=identity,
            repository=plain_path(spec.repository, alias=f"{prefix}repository"),
            backends=plain_path(str(backends), alias=f"{prefix}backends") if backends else None,
            ports=ports,
            stop_timeout_s=spec.stop_timeout_s,
            extra=spec.arguments,
        )
    )


def _stop(record: ServerRecord, *, patience_s: float, hurry: Callable[[], bool]) -> bool:
    log = Path(record.log)
    processes = ServerProcesses(record)
    in_order = processes.stop(patience_s, hurry=lambda: hurry() or _has_given_up(log))
    remove_shared_memory(shared_memory_prefix(record.identity))
    return in_order


def _has_given_up(log: Path) -> bool:
    """Tell whether tritonserver ended its shutdown unfinished, after which it may hang."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return _GAVE_UP in file.read()
    except OSError:
        return False


def _record(spec: LaunchSpec, ports: Ports, identity: str, log: Path, pid: int) -> ServerRecord:
    described = spec.description
    return ServerRecord(
        state="starting",
        endpoints=endpoints_of(ports),
        pid=pid,
        # 0: it has ended already, and no living process will be taken for it.
        process_started=process_start_time(pid) or 0.0,
        identity=identity,
        repository=spec.repository,
        shape=described.shape,
        method=described.method,
        entry_model=described.entry_model,
        models=described.models,
        streaming=described.streaming,
        draft_length=described.draft_length,
        log=str(log),
    )


def _model_of(arguments: list[str]) -> str | None:
    """Return the model that a Python backend stub serves; None for another process.

    The stub is called with ``<repository>/<model>/<version>/model.py``.
    """
    match arguments:
        case [program, model_file, *_] if program.endswith(STUB):
            return Path(model_file).parent.parent.name
        case _:
            return None
