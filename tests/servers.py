"""Real servers for tests: hand-written repositories, and rendered ones, on tritonserver."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from specdeploy import wiring
from specdeploy.core.artifacts import REPOSITORY_RECORD
from specdeploy.core.repository import FileEntry, ModelRepository, Shape
from specdeploy.core.serving import LaunchSpec, ServerRecord
from specdeploy.core.wire import ENTRY_MODELS
from specdeploy.events import Reporter
from specdeploy.workflows.serve import finish, start

ECHO = Path(__file__).parent / "data/repositories/echo"


@contextlib.contextmanager
def running_server(
    repository: Path,
    *,
    workspace: Path | None = None,
    environment: dict[str, str] | None = None,
    startup_timeout_s: float = 120.0,
    stop_at_once: bool = False,
) -> Iterator[ServerRecord]:
    """Serve a repository until the block ends; it has answered a request by then.

    Args:
        repository: A rendered one, or a hand-written one, whose record is then made up.
        workspace: Receives the log and run/server.json; None makes one and removes it.
        environment: Variables for the server.
        startup_timeout_s: After this the start counts as failed.
        stop_at_once: Kill it at the end; an orderly stop takes two seconds.
    """
    with contextlib.ExitStack() as stack:
        root = workspace or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tools = wiring.serve_tools(root, reporter=Reporter())
        spec = LaunchSpec(
            repository=str(repository.resolve()),
            description=describe_repository(repository),
            state_directory=str(root / "cache"),
            environment=environment or {},
            startup_timeout_s=startup_timeout_s,
        )
        server = start(spec, tools)
        try:
            ready = server.record.evolve(state="ready")
            tools.records.write(ready)
            yield ready
        finally:
            if stop_at_once:
                server.stop(hurry=lambda: True)
            finish(server, tools)


def echo_repository(destination: Path, *, behaviour: str = "echo") -> Path:
    """Copy the echo repository to ``destination`` and give it a record.

    Args:
        destination: The new repository.
        behaviour: ``echo``, ``empty``, or one of the model's BEHAVIOURS while it loads.
    """
    shutil.copytree(ECHO, destination, ignore=shutil.ignore_patterns("__pycache__"))
    config = destination / "speculative/config.pbtxt"
    text = config.read_text()
    config.write_text(text.replace('string_value: "echo"', f'string_value: "{behaviour}"'))
    record = describe_repository(destination)
    (destination / REPOSITORY_RECORD).write_text(record.model_dump_json(indent=2))
    return destination


def describe_repository(repository: Path) -> ModelRepository:
    """Return a repository's record, made up when it has none."""
    written = repository / REPOSITORY_RECORD
    if written.exists():
        return ModelRepository.model_validate_json(written.read_bytes())
    models = sorted(config.parent.name for config in repository.glob("*/config.pbtxt"))
    entry = next(name for name in ENTRY_MODELS if name in models)
    shape: Shape = "llmapi" if models == ["tensorrt_llm"] else "engine"
    files = sorted(path for path in repository.rglob("*") if path.is_file())
    return ModelRepository(
        runtime="reference",
        shape=shape,
        method="none",
        models=models,
        entry_model=entry,
        streaming=True,
        draft_length=0,
        plan_digest="0" * 64,
        files=[_entry(path, repository) for path in files],
    )


def _entry(path: Path, repository: Path) -> FileEntry:
    content = path.read_bytes()
    return FileEntry(
        path=path.relative_to(repository).as_posix(),
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
