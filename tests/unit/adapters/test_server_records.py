from __future__ import annotations

from pathlib import Path

import pytest
from server_doubles import a_record

from specdeploy.adapters.server_records import LocalServerRecords
from specdeploy.errors import ArtifactError, ConfigError, ServerError


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = LocalServerRecords(tmp_path)
    records.write(a_record())
    assert records.read() == a_record()


def test_no_record_is_none(tmp_path: Path) -> None:
    assert LocalServerRecords(tmp_path / "nowhere").read() is None


def test_a_removed_record_is_gone_and_may_be_removed_again(tmp_path: Path) -> None:
    records = LocalServerRecords(tmp_path)
    records.write(a_record())
    records.remove(a_record(state="stopping"))
    records.remove(a_record(state="stopping"))
    assert records.read() is None


@pytest.mark.parametrize("change", [{"pid": 1}, {"identity": "specdeploy-other"}])
def test_the_record_of_a_server_that_started_meanwhile_stays(
    change: dict[str, object], tmp_path: Path
) -> None:
    records = LocalServerRecords(tmp_path)
    records.write(a_record(**change))
    records.remove(a_record())
    assert records.read() == a_record(**change)


def test_writing_leaves_nothing_but_the_record(tmp_path: Path) -> None:
    records = LocalServerRecords(tmp_path)
    records.write(a_record())
    records.write(a_record(draft_length=5))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["server.json"]


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', '{"schema_version": 99}'])
def test_a_record_that_cannot_be_read_is_an_artifact_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/server.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"server\.json cannot be read: \S") as caught:
        LocalServerRecords(tmp_path).read()
    assert "\n" not in str(caught.value)


def test_a_second_start_in_the_same_workspace_is_refused_with_the_address(tmp_path: Path) -> None:
    records = LocalServerRecords(tmp_path)
    records.write(a_record())
    again = LocalServerRecords(tmp_path).lock()
    with (
        records.lock(),
        pytest.raises(ServerError, match=r"this workspace, at 127\.0\.0\.1"),
        again,
    ):
        pytest.fail("locked twice")


def test_a_lock_is_free_again_after_its_block(tmp_path: Path) -> None:
    for _ in range(2):
        with LocalServerRecords(tmp_path).lock():
            pass


def test_a_workspace_that_cannot_be_written_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    records = LocalServerRecords(tmp_path / "file")
    with pytest.raises(ConfigError, match="cannot write"):
        records.write(a_record())
    with pytest.raises(ConfigError, match="cannot write"), records.lock():
        pytest.fail("locked")


def test_logs_are_numbered_after_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/0007-build.log").touch()
    records = LocalServerRecords(tmp_path)
    assert records.next_log().name == "0008-tritonserver.log"
    assert records.next_log().name == "0009-tritonserver.log"


def test_logs_go_on_after_the_last_number_of_four_digits(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/9999-build.log").touch()
    (tmp_path / "logs/of-somebody-else.log").touch()
    records = LocalServerRecords(tmp_path)
    assert records.next_log().name == "10000-tritonserver.log"
    assert records.next_log().name == "10001-tritonserver.log"
