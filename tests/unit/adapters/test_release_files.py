"""Profiles are read from the files beside the package."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from releases import a_document, profiles

from specdeploy.adapters.release_files import RELEASES, read_release_profiles
from specdeploy.errors import ArtifactError, ConfigError


def test_every_file_of_the_package_is_a_profile() -> None:
    assert sorted(p.name for p in profiles()) == sorted(f.stem for f in RELEASES.glob("*.yaml"))
    assert len(profiles()) >= 18


def test_adding_a_release_is_adding_a_file(tmp_path: Path) -> None:
    for name in ("9.1", "9.2"):
        content = a_document(line=name, versions=[f"{name}.0"])
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    assert [profile.line for profile in read_release_profiles(tmp_path)] == ["9.1", "9.2"]


def test_a_package_without_profiles_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="missing") as caught:
        read_release_profiles(tmp_path)
    assert caught.value.hint == "install specdeploy again"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("line: 1\nline: 2\n", r"9\.1\.yaml: .*'line' is set twice"),
        ("flags: {a: {default: 1}, a: {default: 2}}\n", "'a' is set twice"),
        ("flags: [", r"9\.1\.yaml"),
        ("- 1\n", "holds no mapping"),
    ],
)
def test_a_file_that_is_no_plain_mapping_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "9.1.yaml").write_text(text)
    with pytest.raises(ArtifactError, match=told):
        read_release_profiles(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "9.1.yaml").mkdir()
    with pytest.raises(ArtifactError, match=r"cannot read .*9\.1\.yaml"):
        read_release_profiles(tmp_path)


def test_a_file_that_is_no_profile_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "9.1.yaml").write_text(yaml.safe_dump(a_document(lines="9.1")))
    with pytest.raises(ConfigError, match=r"release profile 9\.1: lines"):
        read_release_profiles(tmp_path)
