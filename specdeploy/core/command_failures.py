"""Why a tool of TensorRT-LLM failed, read from what it printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from specdeploy.core.record import Record

Kind = Literal[
    "gpu-memory", "host-memory", "architecture", "space", "version", "library", "script", "killed"
]
_KILLED: Final = frozenset({-9, 137})
# The builder warns of every tactic that lacks memory, and goes on.
_HARMLESS: Final = re.compile(r"\[(?:W|I|V)\]|\bWARNING\b|Warning:")


class CommandFailure(Record):
    """A failure that is known, and the way round it."""

    kind: Kind
    sentence: str
    remedy: str


def _failure(kind: Kind, sentence: str, remedy: str) -> CommandFailure:
    return CommandFailure(kind=kind, sentence=sentence, remedy=remedy)


_HOST_MEMORY: Final = _failure(
    "host-memory",
    "the host ran out of memory",
    "give the machine or the container more memory, or build with a smaller tp at a time",
)
_KILLED_BY: Final = _failure(
    "killed",
    "it was killed, most likely because the host ran out of memory",
    "give the machine or the container more memory, and build again: what was finished is kept",
)
_PATTERNS: Final = (
    (
        r"No space left on device|Disk quota exceeded",
        _failure("space", "the disk is full", "make room, or set another workspace"),
    ),
    (
        (
            r"CUDA out of memory|OutOfMemoryError|cudaErrorMemoryAllocation"
            r"|CUDA error: out of memory|\[E\].*(?:OutOfMemory|out of memory)"
        ),
        _failure(
            "gpu-memory",
            "the GPU ran out of memory",
            "lower limits.max_batch_size or limits.max_num_tokens, raise tp, or free the GPU of "
            "other processes",
        ),
    ),
    (r"std::bad_alloc|^MemoryError|Cannot allocate memory", _HOST_MEMORY),
    (
        (
            r"no kernel image is available|Unsupported SM|[Uu]nsupported (?:GPU )?arch"
            r"|SM ?\d+ is not supported|not supported on SM"
            r"|compute capability.*(?:required|not supp)"
        ),
        _failure(
            "architecture",
            "this GPU's architecture is not supported",
            "name the GPU (hardware.gpu), so that a precision it has is asked for, or take a "
            "release that knows it",
        ),
    ),
    (
        (
            r"[Vv]ersion tag does not match|[Vv]ersion mismatch|built with a different version"
            r"|unrecognized arguments: |invalid choice: "
        ),
        _failure(
            "version",
            "the tools are not of the planned version",
            "make runtime.trtllm_version that of the tools, or build in the release's container",
        ),
    ),
    (
        (
            r"error while loading shared libraries|cannot open shared object file"
            r"|ModuleNotFoundError: |ImportError: "
        ),
        _failure(
            "library",
            "a library is missing",
            "build in the release's container, or install what the log names",
        ),
    ),
    (
        r"can't open file '",
        _failure(
            "script",
            "the script is not where this release has it",
            "set runtime.trtllm_source to the folder of the same version's sources",
        ),
    ),
    (r"^(?:\S+: line \d+: +\d+ )?Killed\b", _KILLED_BY),
)
_COMPILED: Final = tuple((re.compile(pattern), failure) for pattern, failure in _PATTERNS)


def recognise_failure(output: str, status: int) -> CommandFailure | None:
    """Return the known failure that a command ended with; None for any other.

    Args:
        output: The end of what it printed.
        status: Its exit status, negative for a signal.
    """
    if status in _KILLED:
        return _KILLED_BY
    found = list(_recognised(output))
    return found[-1] if found else None


def _recognised(output: str) -> Iterator[CommandFailure]:
    """Yield what each line tells; the last one ended the command."""
    for line in output.splitlines():
        if _HARMLESS.search(line):
            continue
        yield from (failure for pattern, failure in _COMPILED if pattern.search(line))
