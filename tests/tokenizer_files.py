"""Writes real tokenizer.json files: byte-level BPE, and word lists of any size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

TEXT = (
    "the quick brown fox jumps over the lazy dog and it's what they said",
    "def f(x): return x ** 2 if x != 0 else -1  # numbers 1234 and 5678",
    "Caf\u00e9 cre\u0300me, na\u00efve HELLO World hello world",
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@cache
def _trained(vocab_size: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer.to_str()


def a_bpe(*, vocab_size: int = 320, specials: Sequence[str] = SPECIALS) -> Tokenizer:
    """Return a small byte-level BPE tokenizer; equal arguments make equal tokenizers."""
    tokenizer = Tokenizer.from_str(_trained(vocab_size))
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in specials])
    return tokenizer


def a_word_list(words: Sequence[str], *, specials: Sequence[str] = ()) -> Tokenizer:
    """Return a tokenizer whose ids are the positions in ``words``; the first is <unk>."""
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in specials])
    return tokenizer


def with_bos(tokenizer: Tokenizer, text: str) -> Tokenizer:
    """Let the tokenizer put ``text`` before every prompt."""
    tokenizer.post_processor = TemplateProcessing(
        single=f"{text} $A", special_tokens=[(text, tokenizer.token_to_id(text))]
    )
    return tokenizer


def numbered(count: int) -> list[str]:
    """Return ``count`` distinct words."""
    return [f"w{i}" for i in range(count)]


def write_tokenizer(
    directory: Path, tokenizer: Tokenizer, *, settings: dict[str, object] | None = None
) -> Path:
    """Write tokenizer.json, and tokenizer_config.json when there are settings."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    if settings is not None:
        (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return directory
