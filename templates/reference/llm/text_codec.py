"""Text to token ids and back, for a checkpoint's tokenizer files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from causal_lm import file_path
from tokenizers import Tokenizer


@final
class TextCodec:
    """A tokenizer. Special tokens are added as the tokenizer says, and have no text."""

    def __init__(self, directory: str) -> None:
        file = file_path(directory) / "tokenizer.json"
        if not file.is_file():
            raise ValueError(f"{directory} has no tokenizer.json; only fast tokenizers are served")
        self._tokenizer = Tokenizer.from_buffer(file.read_bytes())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))
