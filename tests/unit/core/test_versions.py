"""TensorRT-LLM's version numbers."""

from __future__ import annotations

import pytest

from specdeploy.core.versions import parse_version
from specdeploy.errors import ConfigError


def test_versions_are_ordered_as_they_were_published() -> None:
    published = [
        *("0.12.0", "0.17.0", "0.17.0.post1", "0.18.2", "1.0.0", "1.0.3.2510", "1.1.0"),
        *("1.2.0.dev2025110500", "1.2.0rc2", "1.2.0rc6", "1.2.0rc6.post2", "1.2.0rc10", "1.2.0"),
        *("1.2.1", "1.3.0rc8", "1.3.0rc27"),
    ]
    shuffled = sorted(published)
    assert shuffled != published
    assert sorted(shuffled, key=lambda text: parse_version(text).key) == published


@pytest.mark.parametrize("text", ["v1.2.0", " 1.2.0 ", "1.2.0+cu130", "1.2"])
def test_a_version_is_read_however_it_is_written(text: str) -> None:
    assert parse_version(text).key == parse_version("1.2.0").key


def test_a_candidate_with_a_dot_is_the_same_candidate() -> None:
    assert parse_version("1.3.0.rc8") == parse_version("1.3.0rc8")
    assert parse_version("1.3.0rc8").stage == "rc"
    assert parse_version("0.17.0.dev2024121700").stage == "dev"


@pytest.mark.parametrize("text", ["", "latest", "1", "1.2.x", "1.2.0rc", "25.05-py3", "1.2.0-1"])
def test_what_is_no_version_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="not a TensorRT-LLM version") as caught:
        parse_version(text)
    assert "1.2.0rc6.post2" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.2", "1.2.1", True),
        ("1.2.1", "1.2", True),
        ("1.2.0", "1.2.1", False),
        ("1.2", "1.1.0", False),
        ("1.0", "1.0.3.2510", True),
        ("1.2.0rc6", "1.2.0rc6.post2", False),
        ("1.2.0rc6", "1.2.0", False),
        ("1.2rc6", "1.2.0rc6", True),
        ("0.17.post1", "0.17.0", False),
    ],
)
def test_a_less_exact_version_agrees_with_all_that_it_is_the_beginning_of(
    one: str, other: str, *, same: bool
) -> None:
    assert parse_version(one).agrees_with(parse_version(other)) is same
