"""Servers of both arms in every precision and thread setting worth trying."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typing_extensions import Self

from specdeploy import wiring
from specdeploy.client import Client
from specdeploy.core.artifacts import REPOSITORY_RECORD
from specdeploy.core.comparison import Answer, Settings
from specdeploy.core.generation import GenerationOptions, GenerationResult
from specdeploy.core.repository import Method, ModelRepository, Shape
from specdeploy.core.serving import LaunchSpec
from specdeploy.events import Reporter
from specdeploy.runtimes import RUNTIMES
from specdeploy.workflows.build import BuildRequest, build
from specdeploy.workflows.deployment import ConfigRequest, load_config, resolve_deployment
from specdeploy.workflows.serve import start
from specdeploy.workflows.server_ports import RunningServer

PRECISIONS: Final = ("bf16", "fp32")
THREADS: Final = (1, 2)
DRAFT_LENGTHS: Final = (2, 3, 4, 5, 6, 8)
FIRST_DRAFT_LENGTH: Final = 4
# Two servers load at a time: this kind of machine has two cores.
STARTERS: Final = 2
REQUEST_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Pair:
    """The checkpoints, and where everything that is made goes."""

    target: Path
    draft: Path
    folder: Path


def candidates(shape: Shape) -> tuple[list[Settings], list[Settings]]:
    """Return the classic and the speculative settings of one shape; one server each."""
    grid = [(precision, threads) for precision in PRECISIONS for threads in THREADS]
    classic = [
        Settings(arm="classic", shape=shape, method="none", precision=p, threads=t, draft_length=0)
        for p, t in grid
    ]
    speculative = [
        Settings(
            arm="speculative",
            shape=shape,
            method="draft_target",
            precision=p,
            threads=t,
            draft_length=FIRST_DRAFT_LENGTH,
        )
        for p, t in grid
    ]
    return classic, speculative


def draft_lengths(best: Settings) -> list[Settings]:
    """Return the same server at every draft length; a request says which it wants."""
    return [best.evolve(draft_length=length) for length in DRAFT_LENGTHS]


class Fleet:
    """Running servers by their settings."""

    def __init__(self, pair: Pair, reporter: Reporter) -> None:
        self._pair = pair
        self._reporter = reporter
        self._servers: dict[str, RunningServer] = {}
        self._clients: dict[str, Client] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.keep([])

    def start(self, wanted: Sequence[Settings]) -> None:
        """Build what each of these needs, then start a server for each."""
        repositories = [(settings, self._build(settings)) for settings in wanted]
        with ThreadPoolExecutor(STARTERS) as pool:
            for future in [pool.submit(self._start, *one) for one in repositories]:
                future.result()

    def keep(self, wanted: Sequence[Settings]) -> None:
        """Stop every server but those of these settings."""
        kept = {_key(settings) for settings in wanted}
        for key in [key for key in self._servers if key not in kept]:
            self._clients.pop(key).close()
            self._servers.pop(key).stop(hurry=lambda: True)

    def ask(self, settings: Settings, prompt: str, max_tokens: int) -> Answer:
        """Send one greedy request and return what it showed."""
        speculative = settings.arm == "speculative"
        options = GenerationOptions(
            max_tokens=max_tokens,
            temperature=0.0,
            draft_length=settings.draft_length if speculative else None,
        )
        return _answer(self._clients[_key(settings)].generate(prompt, options))

    def _build(self, settings: Settings) -> Path:
        """Build into the shared workspace, where engines of one precision are shared."""
        loaded = load_config(
            ConfigRequest(cwd=self._pair.folder, flags=_flags(self._pair, settings)),
            files=wiring.config_files(),
        )
        deployment = resolve_deployment(
            loaded, checkpoints=wiring.checkpoint_reader(), hub=wiring.hub_resolver()
        )
        request = BuildRequest(
            deployment=deployment, runtime=RUNTIMES[deployment.runtime], keep_superseded=True
        )
        build(request, wiring.workbench(Path(loaded.workspace), reporter=Reporter()))
        # The workspace's link moves on with the next build; the folder behind it stays.
        return (Path(loaded.workspace) / "repository").resolve()

    def _start(self, settings: Settings, repository: Path) -> None:
        home = self._pair.folder / "servers" / _key(settings)
        described = (repository / REPOSITORY_RECORD).read_bytes()
        spec = LaunchSpec(
            repository=str(repository),
            description=ModelRepository.model_validate_json(described),
            state_directory=str(home),
        )
        (home / "run").mkdir(parents=True, exist_ok=True)
        server = start(spec, wiring.serve_tools(home, reporter=self._reporter))
        self._servers[_key(settings)] = server
        self._clients[_key(settings)] = Client(
            server.record.endpoints.grpc, timeout_s=REQUEST_TIMEOUT_S
        )


def _key(settings: Settings) -> str:
    return f"{settings.shape}-{settings.arm}-{settings.precision}-{settings.threads}"


def _flags(pair: Pair, settings: Settings) -> list[tuple[str, str, str]]:
    method: Method = settings.method
    values = {
        "target.path": str(pair.target),
        "target.precision": settings.precision,
        "method": method,
        "runtime.shape": settings.shape,
        "limits.max_batch_size": "1",
        "serving.threads": str(settings.threads),
        "workspace": str(pair.folder / "workspace"),
    }
    if method == "draft_target":
        values |= {
            "draft.path": str(pair.draft),
            # The draft is so small that 16 bit costs it time.
            "draft.precision": "fp32",
            "draft_length": str(max(DRAFT_LENGTHS)),
        }
    return [("--set", key, value) for key, value in values.items()]


def _answer(result: GenerationResult) -> Answer:
    first = next((chunk for chunk in result.chunks if chunk.text), None)
    return Answer(
        output_tokens=result.counts.output_tokens or 0,
        ttft_s=result.ttft_s or result.duration_s,
        first_chunk_tokens=(first.counts.output_tokens if first else None) or 1,
        latency_s=result.duration_s,
        drafted_tokens=result.counts.drafted_tokens or 0,
        accepted_tokens=result.counts.accepted_tokens or 0,
        steps=result.counts.steps or 0,
        text=result.text,
    )
