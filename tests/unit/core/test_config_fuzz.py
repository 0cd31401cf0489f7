"""Whatever the file holds, the answer is a configuration or one clear error."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from specdeploy.adapters.config_files import parse_config
from specdeploy.core.config_errors import validate
from specdeploy.core.settings import (
    layer_of_environment,
    layer_of_file,
    leaf_fields,
    merge,
    sections,
    variable_of_key,
)
from specdeploy.errors import ConfigError

NAMES = sorted({part for key in leaf_fields() for part in key.split(".")})
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


def read(text: str) -> bool:
    """Return whether the text is a configuration; anything but a ConfigError propagates."""
    try:
        file = parse_config(text, name="f", directory=Path("/"))
        validate(layer_of_file(file))
    except ConfigError:
        return False
    return True


@given(st.text(max_size=60))
@example("a: &a [*a]\n")
@example("? {a: 1}\n: 2\n")
@example("target: {path: !!binary 'x'}\n")
@example("target: {path: !!set {a, b}}\n")
@example("<<: 5\n")
@example("target: !!int x\n")
@example("target: !!timestamp x\n")
@example("a: *b\n")
@example("target: {gpus: " + "[" * 1000)
@example("target: {path: 0o9, tp: 0x}\n")
def test_any_text_is_read_or_refused(text: str) -> None:
    read(text)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_any_values_are_read_or_refused(values: dict[str, object]) -> None:
    read(json.dumps(values))


@given(st.sampled_from(sorted(leaf_fields())), st.text(min_size=1, max_size=12))
@example("target.gpus", "[" * 5000)
@example("workload.concurrency", "[1, [2]]")
@example("draft_length", "9" * 5000)
def test_any_text_in_a_variable_is_read_or_refused(key: str, text: str) -> None:
    layer = layer_of_environment({variable_of_key(key): text}, base="/")
    with contextlib.suppress(ConfigError):
        validate(merge([layer]))


@given(st.sampled_from(sorted(sections().keys() - {"target"})), SCALARS)
@settings(max_examples=50)
def test_a_section_that_is_no_mapping_is_refused(key: str, value: object) -> None:
    nested: object = value
    for part in reversed(key.split(".")):
        nested = {part: nested}
    target = {"target": {"path": "t"}}
    assert isinstance(nested, dict)
    assert read(json.dumps({**target, **nested})) is (value is None)
