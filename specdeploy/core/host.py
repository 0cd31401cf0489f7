"""The machine apart from its GPUs: what is installed, how much room there is, what is allowed."""

from __future__ import annotations

from pydantic import Field

from specdeploy.core.devices import HostMemory
from specdeploy.core.record import Record


class Lookup(Record):
    """What was found, or why it was not and what to do."""

    found: str | None = None
    error: str | None = None
    hint: str | None = None


class ContainerFacts(Record):
    """Whether this is a container, and if not, what could run one."""

    inside: bool
    runtime: str | None = Field(default=None, description="docker or podman, with its version.")
    answers: bool = Field(default=False, description="It can be used by this user now.")
    toolkit: str | None = Field(default=None, description="NVIDIA Container Toolkit's version.")


class DiskFacts(Record):
    """The file system that a workspace lies on."""

    path: str
    free_bytes: int | None
    writable: bool


class Limits(Record):
    """This process's limits; null means unlimited."""

    open_files: int | None
    locked_bytes: int | None
    stack_bytes: int | None


class HostFacts(Record):
    """The machine apart from its GPUs."""

    system: str
    python: str
    packages: dict[str, str | None] = Field(description="Version by distribution; null: absent.")
    programs: dict[str, str | None] = Field(description="Path by name; null: not on PATH.")
    server: Lookup
    backends: list[str] = Field(description="Triton's, beside the server.")
    container: ContainerFacts
    disk: DiskFacts
    shared_memory_bytes: int | None = Field(description="Size of /dev/shm; null: there is none.")
    memory: HostMemory
    limits: Limits
