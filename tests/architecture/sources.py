"""The project's Python files, parsed, for the tests of this folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "specdeploy"


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text(), str(path))


def package_files(layer: str = "") -> list[Path]:
    """Return the Python files of the package, or of one of its layers."""
    if (PACKAGE / f"{layer}.py").exists():
        return [PACKAGE / f"{layer}.py"]
    return sorted((PACKAGE / layer).rglob("*.py"))


def written_files() -> list[Path]:
    """Return every Python file that people wrote, tests left out."""
    scripts = [path for path in sorted((ROOT / "scripts").rglob("*")) if _is_python(path)]
    templates = sorted((ROOT / "templates").rglob("*.py"))
    return [*package_files(), *templates, *scripts]


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every absolute module that a file imports, wherever in it, with the line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(node)


def name_of(path: Path) -> str:
    """Return a file as a person would name it."""
    return str(path.relative_to(ROOT))


def _from(node: ast.ImportFrom) -> Iterator[tuple[str, int]]:
    module = node.module or ""
    yield module, node.lineno
    if module == "specdeploy":
        yield from ((f"specdeploy.{alias.name}", node.lineno) for alias in node.names)


def _is_python(path: Path) -> bool:
    if path.suffix == ".py":
        return True
    if path.suffix or not path.is_file():
        return False
    return path.read_text().startswith("#!/usr/bin/env python3")
