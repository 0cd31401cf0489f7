"""Read and write ``specdeploy.yaml``, with the line of every key; read ``tuning.json``."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Final, final

import yaml
from pydantic import ValidationError
from typing_extensions import override

from specdeploy.core.record import digest_json
from specdeploy.core.settings import ConfigFile
from specdeploy.core.tuning import Tuning, TuningFile
from specdeploy.errors import ConfigError

# A settings file has some dozens of keys; aliases can make a small file stand for billions.
_MAX_KEYS: Final = 1_000
_MAX_DEPTH: Final = 20
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
_TAG: Final = "tag:yaml.org,2002:"
_TUNE_AGAIN: Final = "`specdeploy tune` writes it anew"
_KINDS: Final = frozenset({"null", "bool", "int", "float", "str", "seq", "map"})


@final
class LocalConfigFiles:
    """Reads and writes settings files on this machine."""

    def read_config(self, path: Path, *, name: str) -> ConfigFile:
        """Return the file's values and lines; errors call it ``name``.

        Raises:
            ConfigError: unreadable, not YAML, or not a mapping; with the line.
        """
        return parse_config(read_text(path), name=name, directory=path.absolute().parent)

    def write_config(self, path: Path, text: str, *, overwrite: bool) -> None:
        """Write a settings file whole or not at all.

        Raises:
            ConfigError: it is there already and may not be replaced, is no regular file, or
                cannot be written.
        """
        if overwrite and os.path.lexists(path) and not path.is_file():
            raise ConfigError(f"{path} is not a regular file, and is left alone")
        staged = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            staged.write_text(text, encoding="utf-8")
            if overwrite:
                staged.replace(path)
            else:
                path.hardlink_to(staged)  # a rename would replace what is there
        except FileExistsError:
            raise ConfigError(
                f"{path} exists already", hint="--force replaces it; -o writes another file"
            ) from None
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                staged.unlink()

    def read_tuning(self, path: Path) -> TuningFile:
        """Return the choice in a ``tuning.json``.

        Raises:
            ConfigError: unreadable, not JSON, of a newer schema, or without a choice.
        """
        try:
            content = json.loads(read_text(path))
            tuning = Tuning.model_validate(content, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            place = f"{path}: {key}" if key else path
            raise ConfigError(f"{place}: {first['msg']}", hint=_TUNE_AGAIN) from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not JSON: {error}", hint=_TUNE_AGAIN) from None
        return TuningFile(
            path=str(path),
            choice=tuning.choice,
            serving=tuning.serving,
            content_digest=digest_json(content),
        )


def read_text(path: Path) -> str:
    """Return a UTF-8 file's text without a byte-order mark.

    Raises:
        ConfigError: missing, a directory, unreadable or not UTF-8.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text", hint="save it as UTF-8") from None


def parse_config(text: str, *, name: str, directory: Path) -> ConfigFile:
    """Return the values and lines of YAML text; ``name`` is what errors call it.

    Raises:
        ConfigError: not one YAML mapping, a key twice, or nested beyond reason.
    """
    loader = _open(text, name)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(
                f"{name}:1: the file must be a mapping of settings",
                hint="`specdeploy init` writes one that works",
            )
        lines = _Lines(loader, name)
        lines.walk(node)
        values = loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ConfigError(_explain(error, text, name)) from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply") from None
    except (ValueError, OverflowError) as error:
        # PyYAML builds numbers with Python's own constructors, which have limits.
        raise ConfigError(f"{name}: a value cannot be read: {error}") from None
    finally:
        loader.dispose()
    return ConfigFile(name=name, directory=str(directory), values=values, lines=lines.of_key)


def _open(text: str, name: str) -> yaml.SafeLoader:
    try:
        return _Loader(text)
    except yaml.YAMLError as error:
        raise ConfigError(_explain(error, text, name)) from None


class _Loader(yaml.SafeLoader):
    """A safe loader of what settings are made of: no dates, sets or binary data."""

    @override
    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """Refuse what escapes can write, and no path, log or JSON document can hold."""
        if isinstance(node.value, str) and _NO_TEXT.search(node.value):
            message = "a NUL or half of a surrogate pair"
            raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
        return super().construct_scalar(node)


_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_TAG) in _KINDS
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@final
class _Lines:
    """Walks a parsed mapping once, collecting the line of every dotted key."""

    def __init__(self, loader: yaml.SafeLoader, name: str) -> None:
        self._loader, self._name = loader, name
        self._checked: set[int] = set()
        self.of_key: dict[str, int] = {}

    def walk(self, node: yaml.MappingNode, prefix: str = "") -> None:
        if prefix.count(".") > _MAX_DEPTH:
            raise self._error(node, "nested too deeply")
        self._check(node)
        for key_node, value_node in node.value:
            key = f"{prefix}{key_node.value}"
            self.of_key[key] = key_node.start_mark.line + 1
            if len(self.of_key) > _MAX_KEYS:
                raise self._error(key_node, "too many keys; aliases repeat too much")
            if isinstance(value_node, yaml.MappingNode):
                self.walk(value_node, f"{key}.")

    def _check(self, node: yaml.MappingNode) -> None:
        """Check an aliased node once: its merge keys (``<<``) are gone afterwards."""
        if id(node) in self._checked:
            return
        self._checked.add(id(node))
        self._refuse_odd_keys(node)
        self._loader.flatten_mapping(node)

    def _refuse_odd_keys(self, node: yaml.MappingNode) -> None:
        """Refuse a key written twice (YAML would keep the last) and keys that are not words."""
        seen: dict[str, int] = {}
        for key_node, _ in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if key_node.tag == f"{_TAG}merge":
                continue
            if key_node.tag != f"{_TAG}str" or "." in key:
                raise self._error(key_node, "a key must be a plain word")
            if key in seen:
                raise self._error(key_node, f"{key!r} is set on line {seen[key]} already")
            seen[key] = line

    def _error(self, node: yaml.Node, message: str) -> ConfigError:
        return ConfigError(f"{self._name}:{node.start_mark.line + 1}: {message}")


def _explain(error: yaml.YAMLError, text: str, name: str) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, int(error.position)) + 1
        return f"{name}:{line}: not text: character {error.character!r}"
    assert isinstance(error, yaml.MarkedYAMLError)  # noqa: S101 - reading raises no third kind
    line = error.problem_mark.line + 1 if error.problem_mark else 1
    return f"{name}:{line}: not YAML: {error.problem}"
