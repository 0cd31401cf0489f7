"""Arrows point one way: cli -> wiring and workflows -> runtimes -> core."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from architecture.sources import PACKAGE, imported, name_of, package_files, parsed

COMMON = {"errors", "units", "__version__"}
MAY_IMPORT = {
    "core": {"core"},
    "releases": {"core", "releases"},
    "runtimes": {"runtimes", "releases", "core"},
    "workflows": {"workflows", "runtimes", "core", "events", "failure"},
    "adapters": {"adapters", "core", "events", "failure"},
    "client": {"adapters", "core", "client"},
    "schemas": {"core", "runtimes", "workflows"},
    "wiring": {"adapters", "workflows", "core", "events", "client"},
    "cli": {"cli", "wiring", "workflows", "runtimes", "core", "events", "schemas", "client"},
    "errors": set(),
    "units": set(),
    "events": set(),
    "failure": set(),
    "__init__": set(),
    "__main__": {"cli"},
}
PURE_LIBRARIES = {
    *("__future__", "abc", "bisect", "codecs", "collections", "dataclasses", "difflib", "enum"),
    *("fractions", "functools", "hashlib", "heapq", "html", "itertools", "json", "math"),
    *("operator", "re"),
    *("posixpath", "statistics", "string", "struct", "textwrap", "types", "typing", "unicodedata"),
    *("pydantic", "pydantic_core", "typing_extensions", "numpy"),
}
EFFECTS = {"subprocess", "socket", "random", "secrets", "shutil", "tempfile", "logging", "time"}
HEAVY = {
    *("torch", "transformers", "tritonclient", "grpc", "plotly", "pynvml", "safetensors"),
    *("huggingface_hub", "tokenizers", "jinja2", "yaml", "tensorrt_llm", "aiconfigurator_core"),
}
PATH_METHODS = {
    *("read_text", "read_bytes", "write_text", "write_bytes", "exists", "is_dir", "is_file"),
    *("mkdir", "unlink", "iterdir", "rglob", "open", "cwd", "home", "stat", "touch"),
}


def refused(layer: str, allowed: set[str]) -> list[str]:
    return [
        f"{name_of(path)}:{line} imports {module}"
        for path in package_files(layer)
        for module, line in imported(path)
        if module.startswith("specdeploy.") and module.split(".")[1] not in allowed
    ]


def third_party(layer: str) -> Iterator[tuple[Path, str, int]]:
    for path in package_files(layer):
        for module, line in imported(path):
            top = module.partition(".")[0]
            if top != "specdeploy":
                yield path, top, line


def test_every_layer_has_a_rule() -> None:
    layers = {
        path.name.removesuffix(".py")
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert layers == MAY_IMPORT.keys()


@pytest.mark.parametrize("layer", sorted(MAY_IMPORT))
def test_a_layer_imports_only_what_it_may(layer: str) -> None:
    assert refused(layer, MAY_IMPORT[layer] | COMMON) == []


@pytest.mark.parametrize("layer", ["core", "runtimes", "releases"])
def test_pure_layers_import_pure_libraries_only(layer: str) -> None:
    found = third_party(layer)
    assert [f"{name_of(p)}:{n} {top}" for p, top, n in found if top not in PURE_LIBRARIES] == []


def test_workflows_leave_effects_and_heavy_libraries_to_adapters() -> None:
    found = third_party("workflows")
    assert [f"{name_of(p)}:{n} {top}" for p, top, n in found if top in EFFECTS | HEAVY] == []


def test_the_command_line_imports_no_heavy_library() -> None:
    found = third_party("cli")
    assert [f"{name_of(p)}:{n} {top}" for p, top, n in found if top in HEAVY] == []


def test_tensorrt_llm_is_never_imported() -> None:
    everywhere = [(path, module) for path in package_files() for module, _ in imported(path)]
    assert [name_of(p) for p, module in everywhere if module.startswith("tensorrt_llm")] == []


@pytest.mark.parametrize("library", ["tritonclient", "torch", "pynvml", "aiconfigurator_core"])
def test_a_heavy_library_stays_in_adapters(library: str) -> None:
    users = {
        name_of(path)
        for path in package_files()
        for module, _ in imported(path)
        if module.partition(".")[0] == library
    }
    assert [user for user in users if not user.startswith("specdeploy/adapters/")] == []


@pytest.mark.parametrize("layer", ["core", "runtimes", "releases"])
def test_pure_layers_touch_no_files_and_print_nothing(layer: str) -> None:
    found = [
        f"{name_of(path)}:{node.lineno} {called}"
        for path in package_files(layer)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and (called := _effect(node))
    ]
    assert found == []


@pytest.mark.parametrize("layer", ["core", "runtimes", "workflows", "adapters", "client"])
def test_the_environment_and_the_current_folder_are_arguments(layer: str) -> None:
    found = [
        f"{name_of(path)}:{node.lineno} {ast.unparse(node)}"
        for path in package_files(layer)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in {"os.environ", "os.getenv", "os.getcwd", "Path.cwd", "Path.home"}
    ]
    assert found == []


def test_only_the_command_line_prints() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in package_files()
        if not name_of(path).startswith("specdeploy/cli/")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "click.echo"}
    ]
    assert found == []


def test_libraries_called_pure_are_of_python_or_installed_with_the_core() -> None:
    outside = PURE_LIBRARIES - set(sys.stdlib_module_names)
    assert outside == {"pydantic", "pydantic_core", "typing_extensions", "numpy"}


def _effect(node: ast.Call) -> str | None:
    if isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input", "exec"}:
        return node.func.id
    if isinstance(node.func, ast.Attribute) and node.func.attr in PATH_METHODS:
        return node.func.attr
    return None
