"""GPU memory is watched while something else runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_stand_in.library import (
    NOT_SUPPORTED,
    ScriptedMachine,
    a_gpu,
    a_machine,
    loaded_library,
    memory,
)

from specdeploy.adapters.memory_watch import NvmlMemoryWatch
from specdeploy.core.devices import MemoryUse
from specdeploy.units import GIB

NEVER_S = 3600.0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedMachine]:
    with loaded_library():
        yield ScriptedMachine(tmp_path, monkeypatch)


def used(*sizes: int) -> str:
    """Return answers about memory, one for each question."""
    return " ; ".join(memory(10 * GIB, free=10 * GIB - size) for size in sizes)


def figures(use: MemoryUse) -> tuple[int | None, int | None, int]:
    return use.baseline_bytes, use.peak_bytes, use.samples


def test_the_peak_between_start_and_end_is_seen(machine: ScriptedMachine) -> None:
    probe = machine.prober(a_machine(a_gpu(0, memory=used(10, 90, 20)), a_gpu(1)))
    with NvmlMemoryWatch(probe, interval_s=0.005) as watch:
        while watch.uses()[0].samples < 2:
            time.sleep(0.005)
    first, second = watch.uses()
    assert figures(first)[:2] == (10, 90)
    assert figures(second)[:2] == (GIB // 2, GIB // 2)
    assert (first.index, second.index, watch.error) == (0, 1, None)


def test_the_end_is_sampled_however_short_the_run(machine: ScriptedMachine) -> None:
    probe = machine.prober(a_machine(a_gpu(memory=used(10, 40))))
    with NvmlMemoryWatch(probe, interval_s=NEVER_S) as watch:
        assert figures(watch.uses()[0]) == (10, 10, 1)
    assert figures(watch.uses()[0]) == (10, 40, 2)


def test_a_run_that_fails_is_watched_to_its_end(machine: ScriptedMachine) -> None:
    watch = NvmlMemoryWatch(
        machine.prober(a_machine(a_gpu(memory=used(10, 40)))), interval_s=NEVER_S
    )
    with pytest.raises(RuntimeError, match="the run"), watch:
        raise RuntimeError("the run")
    assert figures(watch.uses()[0]) == (10, 40, 2)


def test_the_memory_of_some_processes_is_told_apart(machine: ScriptedMachine) -> None:
    gpu = a_gpu(compute="5:100 6:7 9:1000 ; 5:300 6:7 9:5000")
    probe = machine.prober(a_machine(gpu))
    with NvmlMemoryWatch(probe, interval_s=NEVER_S, pids={5, 6, 77}) as watch:
        pass
    assert figures(watch.uses()[0]) == (107, 307, 2)


def test_processes_that_hold_nothing_yet_start_from_zero(machine: ScriptedMachine) -> None:
    probe = machine.prober(a_machine(a_gpu(compute=" ; 5:300")))
    with NvmlMemoryWatch(probe, interval_s=NEVER_S, pids=[5]) as watch:
        pass
    assert figures(watch.uses()[0]) == (0, 300, 2)


@pytest.mark.parametrize("lists", [{"compute": "5:?"}, {"compute": None, "graphics": None}])
def test_memory_by_process_that_the_driver_does_not_tell_is_not_known(
    machine: ScriptedMachine, lists: dict[str, object]
) -> None:
    probe = machine.prober(a_machine(a_gpu(**lists)))
    with NvmlMemoryWatch(probe, interval_s=NEVER_S, pids=[5]) as watch:
        pass
    assert figures(watch.uses()[0]) == (None, None, 0)


def test_a_unified_memory_is_watched_as_a_whole(machine: ScriptedMachine) -> None:
    probe = machine.prober(
        a_machine(a_gpu(name="NVIDIA GB10", memory=NOT_SUPPORTED)),
        meminfo="MemTotal: 100 kB\nMemAvailable: 60 kB\n",
    )
    with NvmlMemoryWatch(probe, interval_s=NEVER_S) as watch:
        (machine.folder / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 10 kB\n")
    assert figures(watch.uses()[0]) == (40 * 1024, 90 * 1024, 2)


def test_a_memory_that_nobody_tells_has_no_figures(machine: ScriptedMachine) -> None:
    probe = machine.prober(a_machine(a_gpu(memory=NOT_SUPPORTED)))
    with NvmlMemoryWatch(probe, interval_s=NEVER_S) as watch:
        pass
    assert figures(watch.uses()[0]) == (None, None, 0)


def test_a_device_that_goes_away_keeps_what_was_seen(machine: ScriptedMachine) -> None:
    # Three questions find the device, one asks for its MIG mode, one is a sample.
    probe = machine.prober(a_machine(a_gpu(memory=used(10, 90), lost_after=5)))
    with NvmlMemoryWatch(probe, interval_s=NEVER_S) as watch:
        pass
    assert figures(watch.uses()[0]) == (10, 10, 1)


def test_without_a_driver_nothing_is_watched_and_the_reason_is_told(
    machine: ScriptedMachine,
) -> None:
    probe = machine.prober(a_machine(a_gpu(), init=9))
    with NvmlMemoryWatch(probe, interval_s=NEVER_S) as watch:
        pass
    assert watch.uses() == []
    assert "not loaded" in (watch.error or "")


def test_a_probe_meanwhile_does_not_end_the_watch(machine: ScriptedMachine) -> None:
    probe = machine.prober(a_machine(a_gpu(memory=used(10, 20, 40))))
    with NvmlMemoryWatch(probe, interval_s=NEVER_S) as watch:
        assert probe.probe().devices[0].used_bytes == 20
    assert figures(watch.uses()[0]) == (10, 40, 2)
