"""Vocabulary sizes from a directory's tokenizer files; no tokenizer is run."""

from __future__ import annotations

from pathlib import Path

from specdeploy.adapters.json_files import LARGEST_TOKENIZER_BYTES, read_optional_json
from specdeploy.core.checkpoint import TokenizerSizes
from specdeploy.core.vocabulary import sizes_from_tokenizer, sizes_from_vocab


def read_tokenizer_sizes(directory: Path) -> TokenizerSizes | None:
    """Return the vocabulary's sizes; None without a tokenizer.json or vocab.json.

    Raises:
        CheckpointError: a tokenizer file is broken.
    """
    if (whole := _read(directory / "tokenizer.json")) is not None:
        return sizes_from_tokenizer(whole)
    if (vocab := _read(directory / "vocab.json")) is not None:
        added = _read(directory / "added_tokens.json") or {}
        return sizes_from_vocab(vocab, added.values())
    return None


def _read(path: Path) -> dict[str, object] | None:
    # A vocabulary has a hundred thousand keys: not worth the look for duplicates.
    return read_optional_json(path, largest=LARGEST_TOKENIZER_BYTES, unique_keys=False)
