"""What `scripts/golden` makes: files that git keeps and that are never written by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from environment import ROOT
from golden_schemas import schema_files

from specdeploy import wiring
from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.core.artifacts import REPOSITORY_RECORD
from specdeploy.core.build import EnginePaths
from specdeploy.core.deployment import Deployment
from specdeploy.runtimes import RUNTIMES
from specdeploy.workflows.deployment import ConfigRequest, load_config, resolve_deployment
from specdeploy.workflows.package import render_repository

PAIR: Final = ROOT / "examples" / "tiny-pair"
# What the golden repositories name in place of a machine's own paths.
PLACEHOLDER: Final = EnginePaths(target="/path/to/engines/target", draft="/path/to/engines/draft")
# Folder in model_repos -> (shape, method).
REPOSITORIES: Final = {
    "tiny-pair-engine": ("engine", "draft_target"),
    "tiny-pair-llmapi": ("llmapi", "draft_target"),
    "tiny-pair-classic-engine": ("engine", "none"),
    "tiny-pair-classic-llmapi": ("llmapi", "none"),
}

Files = Mapping[str, str]


@dataclass(frozen=True)
class Golden:
    """A folder whose whole content is generated; ``make`` returns path inside it to text."""

    folder: Path
    make: Callable[[], Files]


def repository(shape: str, method: str, *, pair: Path = PAIR) -> Files:
    """Return the files of the tiny pair's repository, with placeholder paths."""
    deployment = _deployment(shape, method, pair)
    rendered = render_repository(
        deployment,
        RUNTIMES[deployment.runtime],
        engines=PLACEHOLDER,
        renderer=StrictRenderer(template_root()),
        must_exist=False,
    )
    files = {path: content.decode() for path, content in rendered.contents.items()}
    return {**files, REPOSITORY_RECORD: rendered.record.model_dump_json(indent=2) + "\n"}


def schemas() -> Files:
    """Return the JSON Schemas, by their path inside docs/schema."""
    return {path.removeprefix("docs/schema/"): text for path, text in schema_files().items()}


def _repository_golden(name: str) -> Golden:
    shape, method = REPOSITORIES[name]
    return Golden(ROOT / "model_repos" / name, lambda: repository(shape, method))


GOLDENS: Final = (
    *(_repository_golden(name) for name in REPOSITORIES),
    Golden(ROOT / "docs" / "schema", schemas),
)


def differences(golden: Golden) -> Iterator[str]:
    """Yield one line for each file that is not what would be written."""
    files = golden.make()
    for path, text in files.items():
        file = golden.folder / path
        if not file.is_file():
            yield f"{file} is missing"
        elif file.read_text(encoding="utf-8") != text:
            yield f"{file} differs"
    for file in _extra(golden.folder, files):
        yield f"{file} is not made by scripts/golden"


def write(golden: Golden) -> None:
    """Make the folder hold the generated files and nothing else."""
    files = golden.make()
    shutil.rmtree(golden.folder, ignore_errors=True)
    for path, text in files.items():
        file = golden.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _extra(folder: Path, files: Files) -> list[Path]:
    found = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return [file for file in found if file.relative_to(folder).as_posix() not in files]


def _deployment(shape: str, method: str, pair: Path) -> Deployment:
    flags = [("--target", "target.path", "target"), ("--draft", "draft.path", "draft")]
    flags += [("--shape", "runtime.shape", shape), ("--method", "method", method)]
    flags += [("--runtime", "runtime.name", "reference")]
    loaded = load_config(ConfigRequest(cwd=pair, flags=flags), files=wiring.config_files())
    return resolve_deployment(
        loaded, checkpoints=wiring.checkpoint_reader(), hub=wiring.hub_resolver()
    )
