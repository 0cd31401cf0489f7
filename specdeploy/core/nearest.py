"""The nearest known word, for messages about misspelt ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like ``word``, or None when none is like it."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?``, or nothing when no known word is near."""
    match = nearest(word, known)
    return f"; did you mean {match!r}?" if match else ""
