"""The mutants are fit to be run: each edits what is there and names tests that exist."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import pytest
import yaml
from architecture.sources import ROOT, parsed

MUTANTS: list[Mapping[str, str | Sequence[str]]] = [
    mutant
    for table in sorted((ROOT / "scripts" / "mutants.d").glob("*.yaml"))
    for mutant in yaml.safe_load(table.read_text())
]


def functions_of(file: str) -> set[str]:
    return {
        node.name for node in ast.walk(parsed(ROOT / file)) if isinstance(node, ast.FunctionDef)
    }


def test_there_are_as_many_as_promised() -> None:
    assert len(MUTANTS) >= 40


def test_each_promise_is_named_once() -> None:
    promises = [str(mutant["promise"]) for mutant in MUTANTS]
    assert sorted(promises) == sorted(set(promises))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant["promise"]))
def test_a_mutant_edits_text_that_is_there_once(mutant: Mapping[str, str]) -> None:
    assert (ROOT / mutant["file"]).read_text().count(mutant["old"]) == 1
    assert mutant["old"] != mutant["new"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant["promise"]))
def test_a_mutant_names_tests_that_exist(mutant: Mapping[str, Sequence[str]]) -> None:
    for test in mutant["tests"]:
        file, _, name = test.partition("::")
        assert name.partition("[")[0].rpartition("::")[2] in functions_of(file)
