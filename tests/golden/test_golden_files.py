"""Golden files are what scripts/golden would write, and the comparison notices a difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from goldens import (
    GOLDENS,
    PLACEHOLDER,
    REPOSITORIES,
    Golden,
    differences,
    documents,
    repository,
    write,
)
from releases import profiles

from specdeploy.adapters.triton_config import parse_model_config
from specdeploy.core.artifacts import REPOSITORY_RECORD, compare_files
from specdeploy.core.repository import ModelRepository, file_entry


def contents(name: str) -> dict[str, str]:
    """Return a golden repository's files, links followed."""
    files = repository(*REPOSITORIES[name])
    return {p: c.read_text() if isinstance(c, Path) else c for p, c in files.items()}


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.folder.name)
def test_what_git_keeps_is_what_would_be_written(golden: Golden) -> None:
    assert list(differences(golden)) == []


@pytest.mark.parametrize("name", REPOSITORIES)
def test_every_config_of_a_golden_repository_is_one_that_triton_reads(name: str) -> None:
    files = contents(name)
    configs = [path for path in files if path.endswith("config.pbtxt")]
    record = ModelRepository.model_validate_json(files[REPOSITORY_RECORD])
    assert sorted(parse_model_config(files[path], path).name for path in configs) == sorted(
        record.models
    )
    assert record.entry_model in record.models


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_golden_repository_names_the_placeholder_and_no_path_of_this_machine(name: str) -> None:
    files = contents(name)
    record = ModelRepository.model_validate_json(files[REPOSITORY_RECORD])
    known = (PLACEHOLDER.target, str(PLACEHOLDER.draft))
    assert record.absolute_paths
    assert all(path.startswith(known) for path in record.absolute_paths)
    assert not any(str(Path.home()) + "/" in text for text in files.values())
    assert any(PLACEHOLDER.target in text for p, text in files.items() if p != REPOSITORY_RECORD)


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_record_of_a_golden_repository_tells_its_files(name: str) -> None:
    files = contents(name)
    record = ModelRepository.model_validate_json(files.pop(REPOSITORY_RECORD))
    found = [file_entry(path, text.encode()) for path, text in files.items()]
    assert list(compare_files(record.files, found)) == []
    assert record.content_digest() == record.plan_digest


def test_the_comparison_names_what_is_missing_different_and_extra(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("1\n")
    golden = Golden(tmp_path / "g", lambda: {"a/b": source, "c": "2\n"})
    folder = golden.folder
    assert list(differences(golden)) == [f"{folder}/a/b is missing", f"{folder}/c is missing"]
    write(golden)
    assert list(differences(golden)) == []
    (tmp_path / "g/c").write_text("3\n")
    (tmp_path / "g/d").write_text("")
    (tmp_path / "g/a/b").unlink()
    (tmp_path / "g/a/b").write_text("1\n")
    assert list(differences(golden)) == [
        f"{folder}/a/b differs",
        f"{folder}/c differs",
        f"{folder}/d is not made by scripts/golden",
    ]
    write(golden)
    assert list(differences(golden)) == []


def test_a_document_among_others_leaves_them_alone(tmp_path: Path) -> None:
    golden = Golden(tmp_path, lambda: {"made.md": "made\n"}, whole=False)
    (tmp_path / "written.md").write_text("by hand\n")
    write(golden)
    assert (tmp_path / "written.md").read_text() == "by hand\n"
    assert list(differences(golden)) == []
    (tmp_path / "made.md").write_text("changed\n")
    assert list(differences(golden)) == [f"{tmp_path}/made.md differs"]


def test_the_document_of_releases_names_every_profile_and_container() -> None:
    text = documents()["releases.md"]
    assert isinstance(text, str)
    for profile in profiles():
        assert f"| {profile.name} |" in text
        assert f"### {profile.name}\n" in text
        assert all(f"| {tag} | {c.trtllm} |" in text for tag, c in profile.containers.items())
        assert all(entry.issue in text for entry in profile.known_bad.values())
