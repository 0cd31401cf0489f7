"""Word lists in the form of TensorRT-LLM's backend."""

from __future__ import annotations

from collections.abc import Sequence


def word_list(runs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return token runs as ``[2, n]``: all ids one after the other, then where each run ends.

    The second row is filled up with -1. No run at all is ``[[0], [-1]]``.
    """
    ids = [token for run in runs for token in run]
    if not ids:
        return [[0], [-1]]
    ends, end = [], 0
    for run in runs:
        end += len(run)
        ends.append(end)
    return [ids, ends + [-1] * (len(ids) - len(ends))]
