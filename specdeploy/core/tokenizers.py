"""What a tokenizer is: its token-to-id map, its rules, and how it encodes a fixed set of texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from pydantic import Field

from specdeploy.core.record import Record

# Texts on which tokenizers that share a vocabulary still tend to part: composed and decomposed
# letters, compatibility forms, runs of spaces and digits, contractions, several scripts, emoji.
PROBES: Final = (
    "The quick brown fox jumps over the lazy dog.",
    "It's what they'd said; we'll SEE, won't we?",
    "HELLO World hElLo",
    "caf\u00e9 cafe\u0301 na\u00efve nai\u0308ve \u212b \u00c5",
    "\ufb01ne \u2460 \uff21\uff22\uff23 \u00bd \u2122 x\u00b2",
    "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 0x1F 2024-01-31",
    "    four spaces, then\ta tab,\t\ttwo tabs  ",
    "\n\nline\r\n\r\n   indented\n\t\tdeeper\n",
    " leading and trailing ",
    "def f(x: int) -> int:\n    return x**2 if x != 0 else -1  # why?\n",
    'for (int i=0;i<n;++i){a[i]+=b["k"];}//x',
    '{"key": [1, 2.5, null, true], "s": "a\\nb"}',
    "SELECT * FROM t WHERE a_b >= 'c' AND d <> \"e\";",
    "https://example.com/a/b?q=1&r=%20#frag user@example.org",
    "Stra\u00dfe \u0130stanbul \u0141\u00f3d\u017a \u00d8re",
    (
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! "
        "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5"
    ),
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u6771\u4eac\u90fd",
    "\u3053\u3093\u306b\u3061\u306f\u3001\u30ab\u30bf\u30ab\u30ca",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    (
        "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 "
        "\u05e9\u05dc\u05d5\u05dd"
    ),
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    (
        "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1ef\U0001f1f5 "
        "\u2764\ufe0f \U0001f44d\U0001f3fd"
    ),
    "a\u00a0b\u2003c\u200bd\u2028e",
    "\u2014\u201cquoted\u201d\u2026 \u2260 \u221e \u2211 \u00b1 $5 \u20ac5",
    "<s> </s> <|endoftext|> [INST] <unk> <pad>",
    "word word  word   word",
)

SAMPLED_TOKENS: Final = 256
SAMPLED_NEIGHBOURS: Final = 32


class AddedToken(Record):
    """A token beside the model's own vocabulary (control tokens, chat markers)."""

    text: str
    id: int
    special: bool


class TokenizerFacts(Record):
    """A tokenizer in a few numbers, for reports."""

    kind: str = Field(description="BPE, Unigram, WordPiece or WordLevel.")
    size: int = Field(description="Tokens in all: base_size + added_size.")
    base_size: int = Field(description="Tokens of the model's own vocabulary.")
    added_size: int = Field(description="Added tokens that are not in that vocabulary.")
    highest_id: int = Field(description="Highest id that any token has.")
    chat_template: bool


class TokenizerSpec(Record):
    """A tokenizer, read from its own files; enough to tell whether another one agrees.

    ``normalizer``, ``pre_tokenizer`` and ``decoder`` are canonical JSON. An encoding is None
    when the tokenizer cannot encode the text at all.
    """

    kind: str
    base_tokens: dict[str, int]
    added_tokens: list[AddedToken] = []
    normalizer: str | None = None
    pre_tokenizer: str | None = None
    decoder: str | None = None
    encodings: dict[str, list[int] | None] = Field(
        default={}, description="Probe text to ids, no special tokens added."
    )
    added_encodings: dict[str, list[int] | None] = Field(
        default={}, description="Added token to the ids of a text that holds it."
    )
    wrapped: list[int] | None = Field(
        default=None, description="The first probe as a prompt, special tokens added."
    )
    chat_template: str | None = None
    eos_token: str | None = None
    pad_token: str | None = None
    conflicts: list[str] = Field(
        default=[], description="Tokens to which the files of this directory give two ids."
    )

    @cached_property
    def tokens(self) -> dict[str, int]:
        """Every token to its id; an added token wins over a base token of the same text."""
        return {**self.base_tokens, **{token.text: token.id for token in self.added_tokens}}

    @cached_property
    def texts(self) -> dict[int, str]:
        """Every id to its token."""
        return {token_id: text for text, token_id in self.tokens.items()}

    @cached_property
    def added_ids(self) -> frozenset[int]:
        """Ids of the added tokens."""
        return frozenset(token.id for token in self.added_tokens)

    @cached_property
    def highest_id(self) -> int:
        """Highest id of any token; -1 for an empty tokenizer."""
        return max(self.texts, default=-1)

    @property
    def facts(self) -> TokenizerFacts:
        """The numbers that a report shows."""
        return TokenizerFacts(
            kind=self.kind,
            size=len(self.tokens),
            base_size=len(self.base_tokens),
            added_size=len(self.tokens) - len(self.base_tokens),
            highest_id=self.highest_id,
            chat_template=self.chat_template is not None,
        )


def spread(ids: Sequence[int]) -> Sequence[int]:
    """Return at least ``SAMPLED_TOKENS`` of the ids when there are as many, evenly spread."""
    return ids[:: max(1, len(ids) // SAMPLED_TOKENS)]


def vocabulary_probes(words: Sequence[str]) -> list[str]:
    """Return texts made from a tokenizer's own words.

    The fixed probes may all be unknown to a small vocabulary. Case is swapped and neighbours
    are joined in several ways, so that lowercasing, splitting and joining rules show.
    """
    step = max(1, len(words) // SAMPLED_NEIGHBOURS)
    neighbours = list(pairwise(words))[::step]
    joined = [f"{a}{glue}{b}" for a, b in neighbours for glue in (" ", "  ", "\n", ",", "")]
    return [*words, *(word.swapcase() for word in words[::4]), *joined]
