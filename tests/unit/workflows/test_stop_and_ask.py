from __future__ import annotations

from pathlib import Path

import pytest
from server_doubles import FakeLauncher, FakeRecords, a_record
from typing_extensions import override

from specdeploy.core.serving import ServerRecord
from specdeploy.errors import ArtifactError, ServerError
from specdeploy.workflows.ask import find_server
from specdeploy.workflows.stop import stop

WORKSPACE = Path("/w")


def test_a_recorded_server_is_stopped_and_forgotten() -> None:
    records, launcher = FakeRecords(a_record()), FakeLauncher([], alive={4242})
    report = stop(WORKSPACE, records=records, launcher=launcher)
    assert (report.outcome, report.pid) == ("stopped", 4242)
    assert [record.pid for record in launcher.stopped] == [4242]
    assert records.record is None


def test_its_end_is_announced_before_it_is_stopped() -> None:
    records = FakeRecords(a_record())
    stop(WORKSPACE, records=records, launcher=FakeLauncher([], alive={4242}))
    assert records.history == ["stopping", "removed"]


def test_a_server_that_starts_meanwhile_keeps_its_record() -> None:
    records, later = FakeRecords(a_record()), a_record(pid=5, identity="specdeploy-later")

    class Replaced(FakeLauncher):
        @override
        def stop_recorded(self, record: ServerRecord, *, patience_s: float) -> bool:
            records.write(later)
            return super().stop_recorded(record, patience_s=patience_s)

    stop(WORKSPACE, records=records, launcher=Replaced([]))
    assert records.record == later


def test_a_server_that_is_gone_has_its_remains_removed() -> None:
    records, launcher = FakeRecords(a_record()), FakeLauncher([])
    assert stop(WORKSPACE, records=records, launcher=launcher).outcome == "was-gone"
    assert launcher.stopped == [a_record()]
    assert records.record is None


def test_nothing_recorded_is_an_artifact_error() -> None:
    with pytest.raises(ArtifactError, match="no server is recorded in /w"):
        stop(WORKSPACE, records=FakeRecords(), launcher=FakeLauncher([]))


def test_a_running_server_is_found() -> None:
    record = a_record()
    launcher = FakeLauncher([], alive={4242})
    assert find_server(WORKSPACE, records=FakeRecords(record), launcher=launcher) == record


def test_nothing_to_ask_says_how_to_start_one() -> None:
    with pytest.raises(ServerError, match="no server is recorded") as caught:
        find_server(WORKSPACE, records=FakeRecords(), launcher=FakeLauncher([]))
    assert "specdeploy serve" in str(caught.value.hint)


def test_a_dead_server_is_not_asked() -> None:
    with pytest.raises(ServerError, match=r"\(pid 4242\) is gone"):
        find_server(WORKSPACE, records=FakeRecords(a_record()), launcher=FakeLauncher([]))


def test_a_server_that_is_starting_is_not_asked() -> None:
    records = FakeRecords(a_record(state="starting"))
    with pytest.raises(ServerError, match="is starting"):
        find_server(WORKSPACE, records=records, launcher=FakeLauncher([], alive={4242}))
