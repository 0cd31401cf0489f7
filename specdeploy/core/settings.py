"""Where settings come from, and which wins: default < file < environment < flag."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import override

from specdeploy.core.config import Config
from specdeploy.core.nearest import did_you_mean
from specdeploy.core.record import Record
from specdeploy.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "SPECDEPLOY_"
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")


class Source(Record):
    """Who gave a value."""

    kind: Literal["default", "file", "environment", "flag", "tuning", "checkpoint"]
    name: str = ""
    line: int | None = None
    base: str = Field(
        default="", description="Absolute folder that a relative path of this source starts from."
    )

    @override
    def __str__(self) -> str:
        """Say it as `specdeploy config` does: ``specdeploy.yaml:3``, ``flag --method``."""
        if self.kind == "file":
            return f"{self.name}:{self.line}"
        return f"{self.kind} {self.name}".rstrip()


DEFAULT: Final = Source(kind="default")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as one source gives it; a section is given as an empty mapping."""

    value: object
    source: Source


Layer = Mapping[str, Given]  # dotted key -> value


class ConfigFile(Record):
    """A parsed file: nested values, and the line of every dotted key."""

    name: str
    directory: str
    values: dict[str, object]
    lines: dict[str, int]


@cache
def leaf_fields() -> Mapping[str, FieldInfo]:
    """Return every setting by its dotted key."""
    return dict(_leaves(Config, ""))


@cache
def sections() -> Mapping[str, type[BaseModel]]:
    """Return every mapping of the file by its dotted key."""
    return dict(_sections(Config, ""))


def layer_of_file(file: ConfigFile) -> Layer:
    """Return the file's values by dotted key; a section left empty counts as absent."""
    layer: dict[str, Given] = {}
    for key, value in _flatten(file.values, ""):
        if value is None and key in sections():
            continue
        source = Source(kind="file", name=file.name, line=file.lines.get(key), base=file.directory)
        layer[key] = Given(value, source)
    return layer


def layer_of_environment(environment: Mapping[str, str], *, base: str) -> Layer:
    """Return the values of ``SPECDEPLOY_`` variables; an empty variable counts as unset.

    Raises:
        ConfigError: a variable with our prefix names no setting.
    """
    layer: dict[str, Given] = {}
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX) and environment[name]:
            key = _key_of_variable(name)
            source = Source(kind="environment", name=name, base=base)
            layer[key] = Given(parse_text(key, environment[name]), source)
    return layer


def layer_of_flags(flags: Sequence[tuple[str, str, str]], *, base: str) -> Layer:
    """Return the values of (flag, dotted key, text) triples; the last one wins.

    Raises:
        ConfigError: ``--set`` names no setting.
    """
    layer: dict[str, Given] = {}
    for flag, key, text in flags:
        if key not in leaf_fields():
            raise ConfigError(f"{flag}: no setting {key!r}{did_you_mean(key, leaf_fields())}")
        source = Source(kind="flag", name=flag, base=base)
        layer[key] = Given(parse_text(key, text), source)
    return layer


def merge(layers: Sequence[Layer]) -> dict[str, Given]:
    """Return the winning value of every key; later layers win."""
    return {key: given for layer in layers for key, given in layer.items()}


def for_models_given(given: Mapping[str, Given]) -> dict[str, Given]:
    """Drop what a flag for both models says of a draft that no source names."""
    if "draft.path" in given:
        return dict(given)
    shared = {value.source for key, value in given.items() if key.startswith("target.")}
    return {
        key: value
        for key, value in given.items()
        if not (key.startswith("draft.") and value.source in shared)
    }


def nest(given: Mapping[str, Given]) -> dict[str, object]:
    """Return dotted keys as nested mappings; a nested key displaces a plain value above it."""
    root: dict[str, object] = {}
    for key in sorted(given, key=lambda key: key.count(".")):
        *parents, name = key.split(".")
        node = root
        for parent in parents:
            below = node.get(parent)
            if not isinstance(below, dict):
                below = node[parent] = {}
            node = below
        node[name] = given[key].value
    return root


def variable_of_key(key: str) -> str:
    """Return the environment variable that sets a key."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "__")


def parse_text(key: str, text: str) -> object:
    """Return text from a variable or flag as the setting's type, or as text when it is not.

    Text that does not fit is refused later, together with everything else that is wrong.
    """
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    annotation: Any = leaf_fields()[key].annotation
    try:
        value: object = TypeAdapter(annotation).validate_strings(text)
    except ValidationError:
        return _out_of_range(annotation, text)
    return value


def _out_of_range(annotation: object, text: str) -> int | str:
    """Return a whole number as one where its range alone refuses it, so that this is told."""
    ranged = any(get_args(part)[:1] == (int,) for part in get_args(annotation))
    return int(text) if ranged and _WHOLE.fullmatch(text) else text


def _key_of_variable(name: str) -> str:
    key = name[len(ENVIRONMENT_PREFIX) :].lower().replace("__", ".")
    if key in leaf_fields():
        return key
    known = [variable_of_key(leaf) for leaf in leaf_fields()]
    if key in sections():
        inside = [variable for variable in known if variable.startswith(f"{name}__")]
        raise ConfigError(
            f"environment variable {name} names a section", hint=f"set {' or '.join(inside)}"
        )
    raise ConfigError(
        f"environment variable {name} sets nothing{did_you_mean(name, known)}",
        hint=f"variables that start with {ENVIRONMENT_PREFIX} are settings; unset it or rename it",
    )


def _flatten(values: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield key, {}
            yield from _flatten(value, f"{key}.")
        else:
            yield key, value


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    candidates: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        section = _section_of(field)
        if section is None:
            yield f"{prefix}{name}", field
        else:
            yield from _leaves(section, f"{prefix}{name}.")


def _sections(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        section = _section_of(field)
        if section is not None:
            yield f"{prefix}{name}", section
            yield from _sections(section, f"{prefix}{name}.")
