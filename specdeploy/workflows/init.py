"""Write the file that a user starts from."""

from __future__ import annotations

import os.path
from dataclasses import dataclass
from pathlib import Path

from specdeploy.core.repository import Method
from specdeploy.core.resolution import HUB_ID, uses_draft
from specdeploy.core.starter import StartedFile, starter_file
from specdeploy.errors import ConfigError
from specdeploy.events import Reporter
from specdeploy.workflows.ports import ConfigFiles


@dataclass(frozen=True, slots=True)
class InitRequest:
    """A pair as typed in the folder ``cwd``, and the file to write (relative to it too)."""

    cwd: Path
    target: str
    draft: str | None
    method: Method | None
    output: Path
    force: bool = False


def init(request: InitRequest, *, files: ConfigFiles, reporter: Reporter) -> StartedFile:
    """Write a ``specdeploy.yaml`` for the pair; without a draft the method is ngram.

    Raises:
        ConfigError: the file is there already, cannot be written, the draft is missing, or
            a path is empty or not UTF-8.
    """
    if "" in {request.target, request.draft}:
        raise ConfigError("the path of a model is empty", hint="give a folder or a Hub id")
    method = request.method or ("draft_target" if request.draft else "ngram")
    if uses_draft(method) and request.draft is None:
        raise ConfigError(f"method {method} needs a draft model", hint="give --draft")
    output = request.cwd / request.output
    started = StartedFile(
        file=os.path.normpath(output),
        target=_as_seen_from(output.parent, request.target, request.cwd),
        draft=_as_seen_from(output.parent, request.draft, request.cwd) if request.draft else None,
        method=method,
    )
    _require_text(started)
    text = starter_file(target=started.target, draft=started.draft, method=method)
    files.write_config(output, text, overwrite=request.force)
    for typed in filter(None, (request.target, request.draft)):
        if not _exists(request.cwd / typed):
            kind = "taken as a Hub id" if HUB_ID.fullmatch(typed) else "there is nothing yet"
            reporter.warning(f"{typed} is not a folder here; {kind}")
    return started


def _as_seen_from(folder: Path, typed: str, cwd: Path) -> str:
    """Return a typed path as the file in ``folder`` must write it; Hub ids stay as they are."""
    if Path(typed).is_absolute() or not _exists(cwd / typed):
        return typed
    return os.path.relpath(cwd / typed, folder)


def _exists(path: Path) -> bool:
    """Tell whether something is there; False for names that the system refuses."""
    return os.path.exists(path)  # noqa: PTH110 - pathlib raises for those


def _require_text(started: StartedFile) -> None:
    """Refuse the names of folders that a text file cannot say."""
    paths = ", ".join(filter(None, (started.target, started.draft)))
    try:
        paths.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"a model's path is not UTF-8, as a settings file is: {paths!a}",
            hint="rename the folder, or link to it under another name",
        ) from None
