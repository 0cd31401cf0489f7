"""Vocabulary sizes from the JSON of tokenizer files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specdeploy.core.checkpoint import TokenizerSizes
from specdeploy.errors import CheckpointError


def sizes_from_tokenizer(tokenizer: Mapping[str, object]) -> TokenizerSizes:
    """Return the sizes that a ``tokenizer.json`` states.

    Added tokens that the base vocabulary holds already are not counted twice.
    """
    model = tokenizer.get("model")
    if not isinstance(model, dict):
        raise CheckpointError("tokenizer.json has no model")
    base = _base_ids(model.get("vocab"))
    added = {_id_of(token) for token in _list(tokenizer.get("added_tokens"))}
    return _sizes(base, added)


def sizes_from_vocab(vocab: Mapping[str, object], added: Iterable[object]) -> TokenizerSizes:
    """Return the sizes of a ``vocab.json`` and the ids added to it."""
    return _sizes(_base_ids(dict(vocab)), {_checked(value) for value in added})


def _sizes(base: set[int], added: set[int]) -> TokenizerSizes:
    every = base | added
    if not every:
        raise CheckpointError("the tokenizer's vocabulary is empty")
    return TokenizerSizes(base=len(base), added=len(every) - len(base), highest_id=max(every))


def _base_ids(vocab: object) -> set[int]:
    if isinstance(vocab, dict):
        return {_checked(value) for value in vocab.values()}
    # Unigram models list (piece, score) pairs; the position is the id.
    if isinstance(vocab, list):
        return set(range(len(vocab)))
    raise CheckpointError("tokenizer.json: model.vocab should be an object or a list")


def _id_of(token: object) -> int:
    if not isinstance(token, dict):
        raise CheckpointError("tokenizer.json: added_tokens should hold objects")
    return _checked(token.get("id"))


def _list(value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise CheckpointError("tokenizer.json: added_tokens should be a list")
    return value


def _checked(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise CheckpointError(f"the tokenizer has the token id {value!r:.40}")
    return value
