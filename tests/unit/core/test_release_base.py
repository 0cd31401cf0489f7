"""A profile's file may state only what changed since another one."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from releases import a_document

from specdeploy.core.release_profile import DraftLenSchedule, ReleaseProfile
from specdeploy.core.releases import complete_profiles
from specdeploy.core.versions import parse_version
from specdeploy.errors import ConfigError

OLD = a_document(
    flags={
        "workers": {"default": 1, "source": "code", "note": "the old one"},
        "fast_build": {"default": False, "switch": True, "source": "code"},
    },
    containers={
        "91.01": {
            "trtllm": "9.1.0",
            "tensorrt": "1",
            "cuda": "1",
            "driver": "1",
            "source": "docs",
        }
    },
)
NEW: dict[str, object] = {
    "base": "9.1",
    "line": "9.2",
    "versions": ["9.2.0"],
    "paths": ["engine"],
    "containers": {},
}


def complete(**changes: object) -> ReleaseProfile:
    """Return the newer of two profiles."""
    return complete_profiles({"9.1": OLD, "9.2": {**NEW, **changes}})[-1]


def test_a_section_that_is_left_out_is_that_of_the_base() -> None:
    assert complete().flags == complete_profiles({"9.1": OLD})[0].flags


def test_an_entry_replaces_the_whole_entry_of_the_base() -> None:
    workers = complete(flags={"workers": {"default": 4, "source": "docs"}}).flags["workers"]
    assert (workers.default, workers.source, workers.note) == (4, "docs", "")


def test_null_removes_an_entry() -> None:
    assert list(complete(flags={"fast_build": None}).flags) == ["workers"]


def test_a_fact_that_is_no_section_is_replaced_whole() -> None:
    schedule = {"keys": "lower", "must_contain_one": True, "source": "docs"}
    found = complete(draft_len_schedule=schedule).draft_len_schedule
    assert found == DraftLenSchedule(keys="lower", must_contain_one=True, source="docs")


def test_containers_are_never_taken_over() -> None:
    assert complete().containers == {}
    assert list(complete_profiles({"9.1": OLD})[0].containers) == ["91.01"]


def test_a_chain_of_bases_is_followed() -> None:
    newest = {**NEW, "base": "9.2", "line": "9.3", "versions": ["9.3.0"]}
    middle = {**NEW, "flags": {"workers": {"default": 2, "source": "code"}}}
    found = complete_profiles({"9.3": newest, "9.2": middle, "9.1": OLD})
    assert [profile.name for profile in found] == ["9.1", "9.2", "9.3"]
    assert found[-1].flags["workers"].default == 2


def test_bases_that_go_round_in_a_circle_are_refused() -> None:
    documents = {"9.1": {**OLD, "base": "9.2"}, "9.2": NEW}
    with pytest.raises(ConfigError, match="based on each other"):
        complete_profiles(documents)


@pytest.mark.parametrize("base", ["9.0", 9])
def test_a_base_that_is_not_there_is_refused(base: object) -> None:
    with pytest.raises(ConfigError, match=r"9\.2: there is no profile"):
        complete(base=base)


def test_an_unknown_key_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"9\.2: flags\.workers\.defualt"):
        complete(flags={"workers": {"defualt": 4, "default": 4, "source": "docs"}})


def test_a_fact_without_a_listed_source_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"flags\.workers: source 'rumour' is not in sources"):
        complete(flags={"workers": {"default": 4, "source": "rumour"}})
    with pytest.raises(ValidationError, match="draft_len_schedule: source 'rumour'"):
        ReleaseProfile.model_validate(
            {**OLD, "name": "x", "draft_len_schedule": {"keys": "absent", "source": "rumour"}}
        )


def test_an_issue_is_named_with_its_repository() -> None:
    bad = {"what": "w", "workaround": "w", "source": "docs", "issue": "#12"}
    with pytest.raises(ConfigError, match=r"known_bad\.it\.issue"):
        complete(known_bad={"it": bad})


def test_candidates_keep_a_profile_from_the_rest_of_its_line() -> None:
    profile = complete(candidates={"first": 3, "last": 5})
    asked = ("9.2.0rc2", "9.2.0rc3", "9.2.0rc5.post1", "9.2.0rc6", "9.2.0")
    assert [t for t in asked if profile.covers(parse_version(t))] == [
        "9.2.0rc3",
        "9.2.0rc5.post1",
    ]
