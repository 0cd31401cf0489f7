"""Reads tokenizers from checkpoint directories; nothing in a directory is executed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, final

from tokenizers import Tokenizer

from specdeploy.adapters.json_files import (
    LARGEST_TOKENIZER_BYTES,
    read_optional_file,
    read_optional_json,
)
from specdeploy.core.tokenizers import (
    PROBES,
    AddedToken,
    TokenizerSpec,
    spread,
    vocabulary_probes,
)
from specdeploy.errors import CheckpointError

# Vocabularies in other formats: there is a tokenizer, and not in a form that can be compared.
OTHER_FORMATS: Final = (
    "tokenizer.model",
    "tokenizer.model.v3",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "tiktoken.model",
    "qwen.tiktoken",
    "vocab.json",
    "vocab.txt",
)


@final
class LocalTokenizers:
    """Reads ``tokenizer.json`` and the files beside it.

    Both models of a pair often hold the same bytes, which are then parsed once.
    """

    def __init__(self) -> None:
        self._parsed: dict[bytes, TokenizerSpec] = {}

    def read_tokenizer(self, path: Path) -> TokenizerSpec | None:
        """Return the directory's tokenizer; None when it has no tokenizer files at all.

        Raises:
            CheckpointError: a file is broken, or the tokenizer is in another format.
        """
        content = read_optional_file(path / "tokenizer.json", largest=LARGEST_TOKENIZER_BYTES)
        if content is None:
            _refuse_other_formats(path)
            return None
        digest = hashlib.blake2b(content).digest()
        if digest not in self._parsed:
            self._parsed[digest] = _parse(content, path / "tokenizer.json")
        return _with_settings(self._parsed[digest], path)


def _refuse_other_formats(path: Path) -> None:
    found = [name for name in OTHER_FORMATS if (path / name).exists()]
    if found:
        raise CheckpointError(
            f"{path} has a tokenizer in {found[0]} only, and no tokenizer.json",
            hint="write one with transformers: AutoTokenizer.from_pretrained(DIR, "
            "use_fast=True).save_pretrained(DIR)",
        )


def _parse(content: bytes, path: Path) -> TokenizerSpec:
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(
            f"{path} is not a tokenizer: {error}", hint="download or save the file again"
        ) from error
    # A file may ask for these; they would cut or lengthen the probes.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return _describe(tokenizer)


def _describe(tokenizer: Tokenizer) -> TokenizerSpec:
    base: dict[str, int] = tokenizer.get_vocab(with_added_tokens=False)
    added = [
        AddedToken(text=token.content, id=token_id, special=token.special)
        for token_id, token in sorted(tokenizer.get_added_tokens_decoder().items())
    ]
    words = [
        tokenizer.decode([i], skip_special_tokens=False) for i in spread(sorted(base.values()))
    ]
    around = _encode(tokenizer, [f"a {token.text} b" for token in added])
    return TokenizerSpec(
        kind=type(tokenizer.model).__name__,
        base_tokens=base,
        added_tokens=added,
        normalizer=_canonical(tokenizer.normalizer),
        pre_tokenizer=_canonical(tokenizer.pre_tokenizer),
        decoder=_canonical(tokenizer.decoder),
        encodings=_encode(tokenizer, [*PROBES, *vocabulary_probes(words)]),
        added_encodings=dict(zip((t.text for t in added), around.values(), strict=True)),
        wrapped=_encode_one(tokenizer, PROBES[0], add_special_tokens=True),
    )


def _canonical(component: Any) -> str | None:  # noqa: ANN401 - the library has no base class
    """Return the JSON of a normalizer, pre-tokenizer or decoder (its pickled state)."""
    if component is None:
        return None
    return json.dumps(json.loads(component.__getstate__()), sort_keys=True)


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, list[int] | None]:
    return {text: _encode_one(tokenizer, text, add_special_tokens=False) for text in texts}


def _encode_one(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int] | None:
    try:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
    except Exception:  # noqa: BLE001 - raised bare for a word that a vocabulary without <unk> lacks
        return None
    return ids


def _with_settings(parsed: TokenizerSpec, path: Path) -> TokenizerSpec:
    """Add what the files beside ``tokenizer.json`` say."""
    settings = _read_object(path / "tokenizer_config.json")
    extra, conflicts = _extra_tokens(parsed, settings, path)
    changes = {
        "added_tokens": [*parsed.added_tokens, *extra],
        "chat_template": _chat_template(settings, path),
        "eos_token": _content(settings.get("eos_token")),
        "pad_token": _content(settings.get("pad_token")),
        "conflicts": conflicts,
    }
    # Validating the vocabulary again would cost more than reading it.
    return TokenizerSpec.model_construct(**{**dict(parsed), **changes})


def _extra_tokens(
    parsed: TokenizerSpec, settings: dict[str, Any], path: Path
) -> tuple[list[AddedToken], list[str]]:
    """Return the tokens that only the files beside name, and those with two ids."""
    extra: list[AddedToken] = []
    conflicts: list[str] = []
    for token in _listed_tokens(settings, path):
        known = parsed.tokens.get(token.text)
        if known == token.id or any(token.text == seen.text for seen in extra):
            continue
        if known is None and token.id not in parsed.texts:
            extra.append(token)
        else:
            conflicts.append(token.text)
    return extra, sorted(set(conflicts))


def _listed_tokens(settings: dict[str, Any], path: Path) -> Iterator[AddedToken]:
    name = path / "tokenizer_config.json"
    for token_id, token in _object(settings.get("added_tokens_decoder"), name).items():
        special = isinstance(token, dict) and token.get("special") is True
        yield _added(name, _content(token), token_id, special=special)
    name = path / "added_tokens.json"
    for text, token_id in _read_object(name).items():
        yield _added(name, text, token_id, special=False)


def _added(path: Path, text: str | None, token_id: Any, *, special: bool) -> AddedToken:  # noqa: ANN401 - JSON
    try:
        return AddedToken(text=text or "", id=int(token_id), special=special)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the id of added token {text!r} is no number") from error


def _chat_template(settings: dict[str, Any], path: Path) -> str | None:
    """Return the template: the file of its own wins, as in transformers."""
    text = read_optional_file(path / "chat_template.jinja", largest=LARGEST_TOKENIZER_BYTES)
    if text is not None:
        return text.decode("utf-8", errors="replace")
    stated = settings.get("chat_template")
    if stated is None:
        stated = _read_object(path / "chat_template.json").get("chat_template")
    if isinstance(stated, list):
        named = {
            item.get("name"): item.get("template") for item in stated if isinstance(item, dict)
        }
        stated = named.get("default") or next(iter(named.values()), None)
    return stated if isinstance(stated, str) else None


def _content(token: object) -> str | None:
    """Return a token's text, written plainly or as an object."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _read_object(path: Path) -> dict[str, Any]:
    return read_optional_json(path, largest=LARGEST_TOKENIZER_BYTES) or {}


def _object(value: object, path: Path) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: an object was expected, not {type(value).__name__}")
    return value
