"""What a started server is, as ``run/server.json`` says it."""

from __future__ import annotations

from pydantic import Field

from specdeploy.core.record import Document, Record
from specdeploy.core.repository import Method, Shape


class Endpoints(Record):
    """Addresses of one server, ``host:port``; a server of ours binds to 127.0.0.1."""

    grpc: str
    http: str
    metrics: str


class ServerRecord(Document):
    """A running server, enough to talk to it and to stop it."""

    endpoints: Endpoints
    pid: int = Field(description="Process id of tritonserver.")
    process_started: float = Field(
        description="Start time of that process in clock ticks, so that a reused pid is seen."
    )
    repository: str
    shape: Shape
    method: Method
    entry_model: str
    models: list[str]
    streaming: bool
    draft_length: int
    log: str
