"""Vocabulary sizes from a directory's tokenizer files; no tokenizer is run."""

from __future__ import annotations

import os
from pathlib import Path

from specdeploy.adapters.json_files import LARGEST_TOKENIZER_BYTES, read_json_object
from specdeploy.core.checkpoint import TokenizerSizes
from specdeploy.core.vocabulary import sizes_from_tokenizer, sizes_from_vocab


def read_tokenizer_sizes(directory: Path) -> TokenizerSizes | None:
    """Return the vocabulary's sizes; None without a tokenizer.json or vocab.json.

    Raises:
        CheckpointError: a tokenizer file is broken.
    """
    whole, vocab = directory / "tokenizer.json", directory / "vocab.json"
    # lexists: a broken link is an error, not an absent file.
    if os.path.lexists(whole):
        return sizes_from_tokenizer(_read(whole))
    if os.path.lexists(vocab):
        added = directory / "added_tokens.json"
        extra = _read(added).values() if os.path.lexists(added) else ()
        return sizes_from_vocab(_read(vocab), extra)
    return None


def _read(path: Path) -> dict[str, object]:
    # A vocabulary has a hundred thousand keys: not worth the look for duplicates.
    return read_json_object(path, largest=LARGEST_TOKENIZER_BYTES, unique_keys=False)
