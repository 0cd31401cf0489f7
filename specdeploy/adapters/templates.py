"""Strict rendering: every name is known, every value is escaped, every result is parsed.

Expressions are escaped by the kind of file, so a template cannot forget to:

* ``*.pbtxt.j2``: strings become the inside of a quoted string, booleans ``true``/``false``.
  Write ``string_value: "{{ name }}"``.
* ``*.yaml.j2`` and ``*.json.j2``: every value becomes JSON, quotes included. Write
  ``model: {{ path }}``.

A value that went through ``tojson`` (or any filter that returns Markup) is left as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, meta, nodes
from jinja2.exceptions import TemplateRuntimeError
from markupsafe import Markup

from specdeploy.adapters.triton_config import absolute_paths, parse_model_config
from specdeploy.core.repository import FileToRender, RepositoryPlan
from specdeploy.errors import ArtifactError

# Upstream's back-ends read a literal "${name}" as "unset" and Triton reads "{{" as text: a
# forgotten value would change behaviour instead of failing.
UNFILLED: Final = ("${", "{{", "{%")

# YAML reads these as line breaks, or not at all, when they stand bare in a quoted string.
NOT_BARE_IN_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


def template_root() -> Path:
    """Return the templates folder: inside the wheel, else of the checkout it runs from."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "templates", package.parent / "templates"):
        if folder.is_dir():
            return folder
    raise ArtifactError(
        f"the templates are missing; looked in {package / 'templates'} "
        f"and {package.parent / 'templates'}",
        hint="install specdeploy again",
    )


@final
class StrictRenderer:
    """Renders a repository plan in memory.

    Args:
        root: The templates folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def render(
        self, plan: RepositoryPlan, *, must_exist: bool = True
    ) -> Iterator[tuple[str, bytes]]:
        """Yield (path inside the repository, content), each checked.

        Args:
            plan: What to write.
            must_exist: Refuse absolute paths that do not exist; off for artifacts that are
                still to be built and for the golden examples.

        Raises:
            ArtifactError: names the file, and the line where there is one.
        """
        for path in plan.absolute_paths:
            _check_path(path, must_exist=must_exist)
        for item in plan.renders:
            text, paths = self._rendered(item)
            for path in paths:
                _check_listed(path, item.path, [*plan.absolute_paths, *plan.server_paths])
                _check_path(path, must_exist=must_exist and path not in plan.server_paths)
            yield item.path, text.encode()
        for copy in plan.copies:
            yield copy.path, self._read(copy.source)

    def _rendered(self, item: FileToRender) -> tuple[str, list[str]]:
        """Return the text and the absolute paths that it names."""
        _refuse_none(item.context, item.template)
        source = self._read(item.template).decode()
        environment = _environment(self._root, item.template)
        try:
            _check_names(environment, source, item)
            text = environment.get_template(item.template).render(item.context)
        except TemplateError as error:
            raise ArtifactError(
                f"{item.template}:{_line_of(error, item.template)}: {error.message}"
            ) from error
        _refuse_unfilled(text, item.path)
        return text, _parsed_paths(text, item.path)

    def _read(self, relative: str) -> bytes:
        try:
            return (self._root / relative).read_bytes()
        except OSError as error:
            raise ArtifactError(f"template {relative}: {error.strerror}") from error


def _check_path(path: str, *, must_exist: bool) -> None:
    if not Path(path).is_absolute():
        raise ArtifactError(f"the repository would name {path!r}, which is not absolute")
    if must_exist and not Path(path).exists():
        raise ArtifactError(f"the repository would name {path!r}, which does not exist")


def _check_listed(path: str, file: str, listed: Sequence[str]) -> None:
    """Refuse a path that the record would not tell `verify` about."""
    if not any(path == known or path.startswith(f"{known}/") for known in listed):
        raise ArtifactError(f"{file} names {path!r}, which the plan does not list")


def escape_pbtxt(value: str) -> str:
    r"""Return the inside of a quoted string of protobuf's text format.

    Quotes and backslashes get a backslash, control characters become three octal digits.
    """
    return "".join(_escaped(character) for character in value)


def _escaped(character: str) -> str:
    if character in "\"'\\":
        return "\\" + character
    code = ord(character)
    return f"\\{code:03o}" if code < 0x20 or code == 0x7F else character  # noqa: PLR2004 - ASCII


def _for_pbtxt(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape_pbtxt(value) if isinstance(value, str) and not _is_safe(value) else value


def _for_json(value: object) -> object:
    if _is_safe(value):
        return value
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TemplateRuntimeError(f"{value!r} has no JSON form: {error}") from error
    return NOT_BARE_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _is_safe(value: object) -> bool:
    return isinstance(value, Markup)


def _finalizer(template: str) -> Callable[[object], object]:
    if template.endswith(".pbtxt.j2"):
        return _for_pbtxt
    if template.endswith((".yaml.j2", ".json.j2")):
        return _for_json
    raise ArtifactError(
        f"template {template}: only .pbtxt.j2, .yaml.j2 and .json.j2 files can be escaped"
    )


def _environment(root: Path, template: str) -> Environment:
    finalize = _finalizer(template)

    def checked(value: object) -> object:
        if value is None:
            raise TemplateRuntimeError("a value is None")
        # Printing an undefined value is what raises.
        return str(value) if isinstance(value, StrictUndefined) else finalize(value)

    return Environment(  # noqa: S701 - no HTML here; `finalize` escapes
        loader=FileSystemLoader(root),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=checked,
    )


def _refuse_none(value: object, where: str) -> None:
    if value is None:
        raise ArtifactError(f"template {where}: the value is None")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse_none(inner, f"{where}: {key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _refuse_none(inner, f"{where}[{index}]")


def _check_names(environment: Environment, source: str, item: FileToRender) -> None:
    tree = environment.parse(source, filename=item.template)
    known = meta.find_undeclared_variables(tree) - set(environment.globals)
    if unused := set(item.context) - known:
        raise ArtifactError(f"{item.template}: nothing uses {', '.join(sorted(unused))}")
    for name in sorted(known - set(item.context)):
        line = min(n.lineno for n in tree.find_all(nodes.Name) if n.name == name)
        raise ArtifactError(f"{item.template}:{line}: {name} is not given")


def _line_of(error: TemplateError, template: str) -> int | str:
    """Return the template's line: syntax errors carry it, the others in their traceback."""
    line = getattr(error, "lineno", None)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(template):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line or "?"


def _refuse_unfilled(text: str, path: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        for mark in UNFILLED:
            if mark in line:
                raise ArtifactError(f"{path}:{number}: {mark!r} is left unfilled: {line.strip()}")


def _parsed_paths(text: str, path: str) -> list[str]:
    """Parse the file as what it claims to be; return the absolute paths among its values."""
    if path.endswith(".pbtxt"):
        return absolute_paths(parse_model_config(text, path))
    try:
        value = json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise ArtifactError(f"{path}: {error}") from error
    return [word for word in _strings(value) if word.startswith("/")]


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - whatever YAML holds
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
