"""Drafting without a draft model: propose what followed the same words earlier.

Prompt lookup (Saxena 2023): the last ``n`` tokens are searched in the text so far, and what
came after their most recent earlier occurrence is proposed. Plain Python without imports
beyond the standard library, because it also runs where there is no torch.
"""

from __future__ import annotations

from collections.abc import Sequence


def prompt_lookup(tokens: Sequence[int], k: int, max_ngram: int = 3) -> list[int]:
    """Propose up to ``k`` tokens that may follow ``tokens``; an empty list when none are known.

    The longest suffix is tried first (``max_ngram`` tokens, down to 1); of several earlier
    occurrences the most recent wins. An occurrence may overlap the suffix itself, so that
    a repeated token is continued. Cost is linear in the length of ``tokens``.
    """
    if k <= 0 or max_ngram <= 0:
        return []
    end = _most_recent_match(tokens, max_ngram)
    return list(tokens[end : end + k]) if end else []


def _most_recent_match(tokens: Sequence[int], max_ngram: int) -> int:
    """Return the index after the chosen earlier occurrence, 0 when there is none."""
    length = len(tokens)
    if length == 0:
        return 0
    last = tokens[-1]
    best_end, best_size = 0, 0
    for end in range(length - 1, 0, -1):
        if tokens[end - 1] != last:
            continue
        size = _shared_suffix(tokens, end, max_ngram)
        if size > best_size:
            best_end, best_size = end, size
        if size == max_ngram:
            break
    return best_end


def _shared_suffix(tokens: Sequence[int], end: int, limit: int) -> int:
    """Count the tokens that ``tokens[:end]`` and ``tokens`` end with alike, at most ``limit``."""
    length = len(tokens)
    size = 1
    while size < min(limit, end) and tokens[end - 1 - size] == tokens[length - 1 - size]:
        size += 1
    return size
