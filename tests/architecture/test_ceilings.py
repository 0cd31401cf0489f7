"""Sizes that nobody should have to argue about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from architecture.sources import ROOT, name_of, parsed, written_files

MODULE_LINES = 400
FUNCTION_LINES = 40
PARAMETERS = 6
NESTING = 3

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def functions() -> Iterator[tuple[Path, Function]]:
    for path in written_files():
        for node in ast.walk(parsed(path)):
            if isinstance(node, Function):
                yield path, node


def told(path: Path, function: Function, size: int) -> str:
    return f"{name_of(path)}:{function.lineno} {function.name}: {size}"


def lines_of(function: Function) -> int:
    """Return the lines of a function without its decorators and docstring."""
    documented = ast.get_docstring(function, clean=False)
    docstring = function.body[0] if documented is not None else None
    spent = (docstring.end_lineno or 0) - docstring.lineno + 1 if docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - spent


def parameters_of(function: Function) -> int:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def is_click_callback(function: Function) -> bool:
    return any("command(" in ast.unparse(decorator) for decorator in function.decorator_list)


def nesting_of(body: list[ast.stmt], depth: int = 0) -> int:
    deepest = depth
    for statement in body:
        if isinstance(statement, Function | ast.ClassDef):
            continue
        inner = depth + isinstance(statement, BLOCKS)
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            children = getattr(statement, name, [])
            deepest = max(deepest, nesting_of(children, _level(statement, name, depth, inner)))
    return deepest


def _level(statement: ast.stmt, name: str, depth: int, inner: int) -> int:
    """Return the depth of a block's child; an ``elif`` is as deep as its ``if``."""
    if isinstance(statement, ast.If) and name == "orelse":
        chained = [type(child) for child in statement.orelse] == [ast.If]
        return depth if chained else inner
    return inner


def test_modules_are_short() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in written_files()}
    assert {name: n for name, n in lengths.items() if n > MODULE_LINES} == {}


def test_test_modules_are_short() -> None:
    lengths = {p: len(p.read_text().splitlines()) for p in (ROOT / "tests").rglob("*.py")}
    assert {name_of(path): n for path, n in lengths.items() if n > MODULE_LINES} == {}


def test_functions_are_short() -> None:
    sizes = [(path, function, lines_of(function)) for path, function in functions()]
    assert [told(*size) for size in sizes if size[2] > FUNCTION_LINES] == []


def test_functions_take_few_parameters() -> None:
    sizes = [
        (path, function, parameters_of(function))
        for path, function in functions()
        if not is_click_callback(function)
    ]
    assert [told(*size) for size in sizes if size[2] > PARAMETERS] == []


def test_blocks_are_not_deeply_nested() -> None:
    sizes = [(path, function, nesting_of(function.body)) for path, function in functions()]
    assert [told(*size) for size in sizes if size[2] > NESTING] == []


def test_the_nesting_measure_counts_what_it_says() -> None:
    text = "if a:\n  for b in c:\n    with d:\n      pass\nelif e:\n  pass\nelse:\n  if f: pass"
    assert nesting_of(ast.parse(text).body) == NESTING
    assert nesting_of(ast.parse("if a:\n  pass\nelif b:\n  pass\nelif c:\n  pass").body) == 1
