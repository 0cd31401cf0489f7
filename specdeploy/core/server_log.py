"""What tritonserver's log says about models, and why a start failed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from specdeploy.core.record import Record

ModelState = Literal["loading", "ready", "failed"]

# The wording of tritonserver 2.51's model_lifecycle.cc.
_STATES: Final[tuple[tuple[re.Pattern[str], ModelState], ...]] = (
    (re.compile(r'"loading: (?P<model>[^:"]+):\d+'), "loading"),
    (re.compile(r"\"successfully loaded '(?P<model>[^']+)'"), "ready"),
    (re.compile(r"\"failed to load '(?P<model>[^']+)' version"), "failed"),
)

# From the most telling line to the least; the first pattern that matches anywhere wins.
_CAUSES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"\"(?P<cause>failed to load '[^']+' version .+)\"$",
        r"(?P<cause>Error parsing text-format .+)$",
        r"\"(?P<cause>Poll failed for model directory .+)\"$",
        r"\"(?P<cause>failed to start \w+ service: .+?)\s*\"$",
        r"(?P<cause>error while loading shared libraries: .+)$",
        r"^E\d{4} (?!.*CudaDriverHelper)[^\]]+\] \"?(?P<cause>.+?)\"?$",
        r"^error: (?P<cause>.+)$",
    )
)


class ModelEvent(Record):
    """One model reached one state."""

    model: str
    state: ModelState


def read_model_event(line: str) -> ModelEvent | None:
    """Return what a log line says about a model's loading, or None."""
    for pattern, state in _STATES:
        if match := pattern.search(line):
            return ModelEvent(model=match["model"], state=state)
    return None


def find_cause(lines: Iterable[str]) -> str | None:
    """Return the sentence of the log that says best why the server failed, or None.

    Triton writes a Python traceback into one line, its parts parted by a backslash and an n;
    only the first part is returned.
    """
    kept = list(lines)
    for pattern in _CAUSES:
        for line in kept:
            if match := pattern.search(line.rstrip()):
                return match["cause"].split("\\n")[0].strip()
    return None


def telling_tail(lines: Iterable[str], count: int) -> list[str]:
    """Return the last ``count`` lines that are neither empty nor part of a table."""
    return [line for line in lines if line.strip() and line[0] not in "|+"][-count:]


def is_bind_failure(lines: Iterable[str]) -> bool:
    """Tell whether the server ended because one of its ports was taken."""
    return any("failed to start" in line and "already in use" in line for line in lines)
