"""The real driver's GPUs are read as others read them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from environment import ROOT

from specdeploy import wiring
from specdeploy.core.devices import plannable_bytes

pytestmark = pytest.mark.gpu


def test_our_reading_agrees_with_every_other_source() -> None:
    finished = subprocess.run(
        [sys.executable, ROOT / "scripts" / "gpu_check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


def test_a_real_gpu_has_memory_to_plan_with() -> None:
    machine = wiring.device_probe().probe()
    assert machine.error is None
    assert all(plannable_bytes(device) <= (device.total_bytes or 0) for device in machine.devices)


def test_a_real_gpu_is_watched() -> None:
    with wiring.memory_watch(interval_s=0.01) as watch:
        pass
    assert all(use.samples >= 2 for use in watch.uses())
    assert watch.uses()
