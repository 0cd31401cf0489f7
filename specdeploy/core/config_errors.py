"""What is wrong with a configuration, said with the place and the way out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from specdeploy.core.config import Config
from specdeploy.core.nearest import did_you_mean
from specdeploy.core.settings import Given, Source, leaf_fields, nest, sections
from specdeploy.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SHOWN_CHARACTERS: Final = 60
_EXPECTED: Final[Mapping[str, str]] = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "string_type": "text (put it in quotes)",
    "string_too_short": "not empty",
    "string_unicode": "text in UTF-8",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


def validate(given: Mapping[str, Given]) -> Config:
    """Return the configuration that merged settings make.

    Raises:
        ConfigError: one line per problem, each with its place.
    """
    try:
        return Config.model_validate(nest(given), strict=True)
    except ValidationError as error:
        problems = list(_problems(error.errors(include_url=False), given))
        raise ConfigError("\n".join(problems)) from None


def _problems(errors: Sequence[ErrorDetails], given: Mapping[str, Given]) -> Iterator[str]:
    by_key: dict[str, list[ErrorDetails]] = {}
    for error in errors:
        by_key.setdefault(_key(error), []).append(error)
    for key in sorted(by_key, key=lambda key: _line(key, given)):
        source, sentence = _source(key, given), _sentence(key, by_key[key])
        yield f"{source}: {sentence}" if source else sentence


def _key(error: ErrorDetails) -> str:
    """Return the dotted key of an error: pydantic adds union members and list indices to it."""
    names = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        return ".".join(names)
    known = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return next((key for key in known if key in leaf_fields() or key in sections()), names[0])


def _source(key: str, given: Mapping[str, Given]) -> Source | None:
    """Return where a key was written, or where the section it is missing from was."""
    while key:
        if key in given:
            return given[key].source
        key = key.rpartition(".")[0]
    return None


def _line(key: str, given: Mapping[str, Given]) -> int:
    source = _source(key, given)
    return (source and source.line) or 0


def _sentence(key: str, group: Sequence[ErrorDetails]) -> str:
    first = group[0]
    if first["type"] == "extra_forbidden":
        return f"unknown key {key.rpartition('.')[2]!r}{_where_known(key)}"
    if first["type"] == "missing":
        return f"{key} is missing{_how_to_give(key)}"
    if first["type"] == "value_error":
        return f"{key}: {first['msg'].removeprefix('Value error, ')}"
    expected = " or ".join(dict.fromkeys(_expectation(key, error) for error in group))
    return f"{key} is {_shown(first['input'])}, but must be {expected}{_near(group)}"


def _expectation(key: str, error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    if error["type"] == "literal_error":
        return str(context["expected"])
    if error["type"] == "model_type":
        return f"a mapping of {', '.join(sections()[key].model_fields)}"
    template = _EXPECTED.get(error["type"])
    return template.format(**context) if template else error["msg"]


def _near(group: Sequence[ErrorDetails]) -> str:
    """Return the nearest allowed word, when a word was given and words are allowed."""
    for error in group:
        if error["type"] == "literal_error" and isinstance(error["input"], str):
            words = str(error["ctx"]["expected"]).replace(" or ", ", ").split(", ")
            return did_you_mean(error["input"], [word.strip("'") for word in words])
    return ""


def _where_known(key: str) -> str:
    """Return a correction: a near key here, the section it belongs to, or what may stand here."""
    parent, _, name = key.rpartition(".")
    here = sections()[parent].model_fields if parent in sections() else Config.model_fields
    if suggestion := did_you_mean(name, here):
        return suggestion
    elsewhere = [leaf for leaf in leaf_fields() if leaf.rpartition(".")[2] == name]
    if elsewhere:
        return f"; it belongs under {' or '.join(leaf.rpartition('.')[0] for leaf in elsewhere)}"
    return f"; known keys here: {', '.join(here)}"


def _how_to_give(key: str) -> str:
    if key in sections():
        inside = [leaf for leaf in leaf_fields() if leaf.startswith(f"{key}.")]
        return f"; set {inside[0]}, or pass --{key}"
    return ""


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:  # a YAML alias can make a list contain itself
        text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
