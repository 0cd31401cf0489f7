"""What a started server is, as ``run/server.json`` says it, and how it is launched."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specdeploy.core.record import Document, Record
from specdeploy.core.repository import Method, ModelRepository, Shape

LOOPBACK = "127.0.0.1"
"""Every server of ours binds here and nowhere else."""

ServerState = Literal["starting", "ready", "stopping"]


class Ports(Record):
    """TCP ports of one server; 0 means: pick a free one."""

    grpc: int = Field(default=0, ge=0, le=65535)
    http: int = Field(default=0, ge=0, le=65535)
    metrics: int = Field(default=0, ge=0, le=65535)

    @property
    def chosen(self) -> dict[str, int]:
        """The ports that were asked for, by the name of their option."""
        return {name: port for name, port in dict(self).items() if port}


class Endpoints(Record):
    """Addresses of one server, ``host:port``; a server of ours binds to 127.0.0.1."""

    grpc: str
    http: str
    metrics: str


class ServerRecord(Document):
    """A running server, enough to talk to it and to stop it."""

    state: ServerState = Field(
        default="ready",
        description="starting: no answer was seen yet; stopping: specdeploy stop was called.",
    )
    endpoints: Endpoints
    pid: int = Field(description="Process id of tritonserver, which leads its own session.")
    process_started: float = Field(
        description="Start time of that process in clock ticks, so that a reused pid is seen."
    )
    identity: str = Field(
        description="Unique on the host: Triton's server id, the beginning of its "
        "shared-memory files, and a variable in the environment of its processes."
    )
    repository: str
    shape: Shape
    method: Method
    entry_model: str
    models: list[str]
    streaming: bool
    draft_length: int
    log: str

    def is_of(self, other: ServerRecord | None) -> bool:
        """Tell whether both are of one server, whatever its state."""
        return other is not None and (self.pid, self.identity) == (other.pid, other.identity)


class LaunchSpec(Record):
    """One launch of tritonserver: what to serve, where to listen, how long to wait."""

    repository: str = Field(description="Absolute path of the model repository.")
    description: ModelRepository
    state_directory: str = Field(description="Writable folder for the backend's copy.")
    ports: Ports = Ports()
    environment: dict[str, str] = Field(
        default={}, description="On top of the repository's own variables."
    )
    arguments: list[str] = Field(default=[], description="Further arguments of tritonserver.")
    startup_timeout_s: float = Field(default=180.0, gt=0)
    stop_timeout_s: int = Field(
        default=5, ge=0, description="Requests in flight get this long when it stops."
    )
    outlives_us: bool = Field(
        default=False, description="A detached server; otherwise it ends when we are killed."
    )


class ServerArguments(Record):
    """The values of one tritonserver command line."""

    identity: str = Field(description="As in ServerRecord.")
    repository: str
    backends: str | None = Field(description="None: the installation's own backend folder.")
    ports: Ports
    stop_timeout_s: int
    extra: list[str] = []


def shared_memory_prefix(identity: str) -> str:
    """Return how the names of a server's shared-memory files begin."""
    return f"{identity}-"


def endpoints_of(ports: Ports) -> Endpoints:
    """Return the addresses of a server that listens on ``ports``."""
    return Endpoints(
        grpc=f"{LOOPBACK}:{ports.grpc}",
        http=f"{LOOPBACK}:{ports.http}",
        metrics=f"{LOOPBACK}:{ports.metrics}",
    )


def triton_arguments(values: ServerArguments) -> list[str]:
    """Return tritonserver's arguments, the program itself left out."""
    backend = [f"--backend-directory={values.backends}"] if values.backends else []
    return [
        f"--id={values.identity}",
        f"--model-repository={values.repository}",
        *backend,
        f"--backend-config=python,shm-region-prefix-name={shared_memory_prefix(values.identity)}",
        f"--grpc-address={LOOPBACK}",
        f"--grpc-port={values.ports.grpc}",
        f"--http-address={LOOPBACK}",
        f"--http-port={values.ports.http}",
        f"--metrics-address={LOOPBACK}",
        f"--metrics-port={values.ports.metrics}",
        f"--exit-timeout-secs={values.stop_timeout_s}",
        *values.extra,
    ]


class StopReport(Document):
    """The result of ``specdeploy stop``."""

    workspace: str
    pid: int
    outcome: Literal["stopped", "was-gone"] = Field(
        description="was-gone: the recorded process had ended before; its remains were removed."
    )


class ModelStatus(Record):
    """One model as a server's repository index lists it."""

    name: str
    state: str = Field(description="READY, UNAVAILABLE, LOADING or UNLOADING; may be empty.")
    reason: str = ""


class ServerHealth(Record):
    """What a server that answers says about itself."""

    identity: str = Field(description="Triton's server id.")
    version: str
    ready: bool
    models: list[ModelStatus]
