"""The table of codes is complete, stable in form, and what the documentation says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import specdeploy.core.compat
from specdeploy.core.compat import CODES, findings_table
from specdeploy.core.compat.codes import finding

PACKAGE = Path(specdeploy.core.compat.__file__).parent
DOCS = Path(__file__).parents[3] / "docs" / "findings.md"


def strings_of_the_checks() -> set[str]:
    """Return every text literal of the modules that report findings."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in PACKAGE.glob("*.py")
        if path.name != "codes.py"
    ]
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_codes_are_kebab_case() -> None:
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code) for code in CODES)


def test_every_code_of_the_table_is_reported_somewhere() -> None:
    assert set(CODES) <= strings_of_the_checks()


def test_the_documentation_holds_the_table() -> None:
    assert findings_table() in DOCS.read_text(encoding="utf-8")


def test_a_severity_outside_the_table_is_a_bug() -> None:
    with pytest.raises(ValueError, match="never info"):
        finding("tokenizer-ids-differ", "message", severity="info")
