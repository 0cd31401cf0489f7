"""Which profile a version, a container or a build host stands for."""

from __future__ import annotations

import pytest
from releases import profile_for, profiles, tables

from specdeploy.core.releases import DecidedVersion, decide_version, find_container, find_release
from specdeploy.errors import ConfigError

IMAGE = "nvcr.io/nvidia/tritonserver:25.05-trtllm-python-py3"


def decide(
    config: str | None = None, container: str | None = None, host: str | None = None
) -> DecidedVersion:
    return decide_version(config, container, host, profiles=profiles())


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.12.0", "0.12"),
        ("0.17.0.post1", "0.17"),
        ("0.18.2", "0.18"),
        ("1.0.3.2510", "1.0"),
        ("1.2", "1.2"),
        ("1.2.1", "1.2"),
        ("1.2.0rc6.post2", "1.2"),
        ("1.3.0rc2", "1.3rc2"),
        ("1.3.0rc8", "1.3rc8"),
        ("1.3.0rc14.post1", "1.3rc8"),
        ("1.3.0rc20", "1.3rc20"),
        ("1.3.0rc29", "1.3rc27"),
        ("1.4.0rc4", "1.4"),
    ],
)
def test_a_version_leads_to_the_profile_of_its_line(version: str, name: str) -> None:
    assert profile_for(version).name == name


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("0.11.0", "0.12.0"),
        ("1.3.0rc5", "1.3.0rc2, 1.3.0rc8"),
        ("1.3.0", "1.3.0rc29, 1.4.0rc1"),
        ("2.0.0", "1.4.0rc4"),
        ("0.19.5.dev1", "0.19.0, 0.20.0"),
        ("1.20.0", "1.4.0rc4"),
    ],
)
def test_an_unknown_version_is_refused_with_its_neighbours(version: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match="is not known") as caught:
        profile_for(version)
    assert str(caught.value.hint) == f"the nearest known: {nearest}"


def test_a_development_build_is_refused_as_one() -> None:
    with pytest.raises(ConfigError, match="development build"):
        find_release("0.18.0.dev2025021800", profiles())


@pytest.mark.parametrize("row", tables()["containers"], ids=lambda row: str(row[0]))
def test_a_container_tag_tells_its_versions(row: list[str]) -> None:
    tag, *versions = row
    for name in (tag, f"nvcr.io/nvidia/tritonserver:{tag}-trtllm-python-py3"):
        found = find_container(name, profiles())
        assert found is not None
        assert [found.trtllm, found.tensorrt, found.cuda, found.driver] == versions


def test_every_container_belongs_to_the_profile_that_lists_it() -> None:
    listed = [(p.name, e.trtllm) for p in profiles() for e in p.containers.values()]
    assert len(listed) == len(tables()["containers"])
    assert [(name, profile_for(version).name) for name, version in listed] == [
        (name, name) for name, _ in listed
    ]


@pytest.mark.parametrize(
    "image", ["registry/team/trtllm:latest", "tritonserver:25.05-py3", "tritonserver:25.05-vllm"]
)
def test_an_image_of_another_kind_tells_nothing(image: str) -> None:
    assert find_container(image, profiles()) is None


@pytest.mark.parametrize(("tag", "near"), [("26.08", "26.07"), ("24.05", "24.08")])
def test_an_unknown_tag_is_refused_with_the_nearest(tag: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"no TensorRT-LLM container {tag}") as caught:
        find_container(tag, profiles())
    assert near in str(caught.value.hint)


def test_the_settings_come_before_the_container_and_the_container_before_the_host() -> None:
    assert decide("0.19.0", IMAGE).decided_by == "config"
    assert decide(None, IMAGE, "1.2.1").decided_by == "container"
    assert decide(None, IMAGE, "1.2.1").version == "0.19.0"
    assert decide(None, None, "1.2.1").decided_by == "host"


def test_tools_of_the_host_do_not_stand_in_for_an_image_of_another_kind() -> None:
    with pytest.raises(ConfigError, match="nothing tells") as caught:
        decide(None, "registry/team/trtllm:latest", "1.2.1")
    assert "runtime.trtllm_version" in str(caught.value.hint)
    assert decide("1.2.1", "registry/team/trtllm:latest").decided_by == "config"


def test_nothing_is_guessed_when_nobody_tells() -> None:
    with pytest.raises(ConfigError, match="nothing tells"):
        decide()


def test_a_contradiction_between_settings_and_container_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is 1\.2\.1 and the container .* TensorRT-LLM 0\.19\.0"):
        decide("1.2.1", IMAGE)


def test_a_contradiction_between_settings_and_host_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is 1\.2\.1 and the tools of this machine .* 0\.19\.0"):
        decide("1.2.1", None, "0.19.0")


def test_a_line_in_the_settings_is_made_exact_by_the_container() -> None:
    decided = decide("1.2", "26.04")
    assert (decided.version, decided.decided_by, decided.profile) == ("1.2.1", "config", "1.2")


def test_a_version_that_no_profile_is_exactly_of_is_decided_with_a_note() -> None:
    assert decide("1.2.1").notes == []
    (note,) = decide("1.2.0rc6").notes
    assert "1.2.0 and 1.2.1, not of 1.2.0rc6" in note
