"""Facts about processes, from /proc."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class ProcessFacts(NamedTuple):
    """One line of ``/proc/<pid>/stat``; ``started`` counts clock ticks since boot."""

    pid: int
    state: str
    started: float


def read_process(pid: int) -> ProcessFacts | None:
    """Return a process's facts, or None when there is none or only its remains.

    A zombie counts as gone: in a container whose first process reaps nothing it would stay
    for ever.
    """
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The command's name is in brackets and may hold spaces and brackets itself.
    fields = text[text.rindex(")") + 2 :].split()
    facts = ProcessFacts(pid, fields[0], float(fields[19]))
    return None if facts.state in "ZX" else facts


def processes_with(variable: str) -> list[ProcessFacts]:
    """Return the living processes that were started with ``variable`` (``NAME=value``)."""
    found = (read_process(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdigit())
    return [facts for facts in found if facts and variable.encode() in _environment(facts.pid)]


def command_lines() -> list[str] | None:
    """Return every process's command line, or None where processes cannot be listed."""
    try:
        pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return None
    return [" ".join(read_arguments(pid)) for pid in pids]


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def read_arguments(pid: int) -> list[str]:
    """Return a process's command line, or nothing when it is gone."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").rstrip("\0").split("\0")
