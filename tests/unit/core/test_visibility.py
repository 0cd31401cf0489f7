"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER mean what they mean to CUDA."""

from __future__ import annotations

import pytest

from specdeploy.core.visibility import (
    Choice,
    InstalledGpu,
    MigInstance,
    Visibility,
    visible_devices,
)

FIRST = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
NEAR = "GPU-8932f937-0000-4106-c12f-20bd9faed9f6"
OTHER = "GPU-15f1c09c-3a4e-4c8d-8a3a-3c1bd5d1b4f2"
MIG = "MIG-377e0049-554c-540b-93c6-d0976f8426cb"
MIG_2 = "MIG-8f4c5a0e-1111-540b-93c6-d0976f8426cb"


def gpu(uuid: str, name: str = "NVIDIA A100-SXM4-40GB") -> InstalledGpu:
    return InstalledGpu(uuid=uuid, name=name)


def split(uuid: str, *instances: MigInstance) -> InstalledGpu:
    return InstalledGpu(uuid=uuid, name="NVIDIA A100", mig_enabled=True, instances=instances)


PLAIN = [gpu(FIRST), gpu(OTHER), gpu("GPU-2b"), gpu("GPU-2c")]
SPLIT = [gpu(FIRST), split(OTHER, MigInstance(MIG, 1, 0), MigInstance(MIG_2, 5, 0))]


def seen(asked: str | None, installed: list[InstalledGpu] = PLAIN) -> Visibility:
    return visible_devices(installed, {} if asked is None else {"CUDA_VISIBLE_DEVICES": asked})


def indices(visibility: Visibility) -> list[int]:
    return [choice.index for choice in visibility.chosen]


def codes(visibility: Visibility) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in visibility.findings]


def test_without_the_variable_every_gpu_is_seen() -> None:
    assert indices(seen(None)) == [0, 1, 2, 3]
    assert codes(seen(None)) == []


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("0, 2", [0, 2]), ("2,1", [2, 1]), (" 3 ", [3]), ("+1", [1]), ("1gpu2,2ampere", [1, 2])],
)
def test_indices_are_seen_in_the_order_they_are_written(asked: str, expected: list[int]) -> None:
    assert indices(seen(asked)) == expected
    assert codes(seen(asked)) == []


@pytest.mark.parametrize("asked", ["", "-1", "-1,0", "junk,0", "9,0", "NoDevFiles"])
def test_a_list_that_begins_with_no_device_hides_every_gpu(asked: str) -> None:
    assert indices(seen(asked)) == []
    assert codes(seen(asked)) == [("visible-none", "error")]


@pytest.mark.parametrize("asked", ["0,junk,1", "0,-1,1", "0,9,1", "0,,1", f"0,{OTHER}"])
def test_the_first_bad_entry_ends_the_list(asked: str) -> None:
    assert indices(seen(asked)) == [0]
    assert codes(seen(asked)) == [("visible-entry-unknown", "warning")]


def test_the_bad_entry_is_named() -> None:
    assert "'junk'" in seen("0,junk,1").findings[0].message


@pytest.mark.parametrize("asked", [FIRST, "GPU-8932f937", "GPU-8"])
def test_a_gpu_is_found_by_its_uuid_or_the_beginning_of_it(asked: str) -> None:
    assert indices(seen(asked)) == [0]
    assert codes(seen(asked)) == []


def test_uuids_are_seen_in_the_order_they_are_written() -> None:
    assert indices(seen(f"{OTHER}, {FIRST}")) == [1, 0]


def test_a_beginning_that_two_gpus_share_is_an_error_that_names_both() -> None:
    visibility = seen("GPU-8932f937", [gpu(FIRST), gpu(NEAR)])
    assert (indices(visibility), codes(visibility)) == ([], [("visible-ambiguous", "error")])
    assert visibility.findings[0].hint == f"write more of it: {FIRST}, {NEAR}"


@pytest.mark.parametrize("asked", ["0,0", "1,0,1", f"{FIRST},GPU-8932"])
def test_a_device_named_twice_leaves_none(asked: str) -> None:
    visibility = seen(asked)
    assert (indices(visibility), codes(visibility)) == ([], [("visible-repeated", "error")])


@pytest.mark.parametrize("asked", ["GPU-ffff", f"{MIG}", "MIG-GPU-2b/1/0"])
def test_an_id_that_nothing_here_has_hides_every_gpu(asked: str) -> None:
    assert codes(seen(asked)) == [("visible-none", "error")]


def test_an_index_after_a_uuid_ends_the_list() -> None:
    assert indices(seen(f"{OTHER},0")) == [1]


@pytest.mark.parametrize("asked", [MIG_2, "MIG-8f4c", f"MIG-{OTHER}/5/0"])
def test_a_mig_instance_is_found_by_its_id_in_both_forms(asked: str) -> None:
    assert seen(asked, SPLIT).chosen == (Choice(1, 1),)
    assert codes(seen(asked, SPLIT)) == []


@pytest.mark.parametrize("asked", [f"MIG-{OTHER}/6/0", f"MIG-{FIRST}/5/0"])
def test_a_mig_path_that_nothing_here_has_hides_every_gpu(asked: str) -> None:
    assert codes(seen(asked, SPLIT)) == [("visible-none", "error")]


def test_of_several_mig_instances_cuda_sees_one() -> None:
    visibility = seen(f"{MIG_2},{MIG}", SPLIT)
    assert visibility.chosen == (Choice(1, 1),)
    assert codes(visibility) == [("mig-one-instance", "warning")]


@pytest.mark.parametrize("asked", ["1", OTHER])
def test_a_gpu_in_mig_mode_stands_for_its_first_instance(asked: str) -> None:
    visibility = seen(asked, SPLIT)
    assert visibility.chosen == (Choice(1, 0),)
    assert ("mig-first-instance", "warning") in codes(visibility)


def test_beside_a_mig_instance_no_whole_gpu_is_seen() -> None:
    visibility = seen(f"{FIRST},{OTHER}", SPLIT)
    assert visibility.chosen == (Choice(1, 0),)
    assert codes(visibility) == [
        ("mig-first-instance", "warning"),
        ("mig-one-instance", "warning"),
    ]


def test_a_gpu_in_mig_mode_without_instances_is_not_seen() -> None:
    visibility = seen(None, [split(FIRST)])
    assert visibility.chosen == ()
    assert codes(visibility) == [("mig-no-instance", "warning")]


MIXED = [gpu("GPU-a", "NVIDIA GeForce GTX 745"), gpu("GPU-b", "NVIDIA GeForce GTX 1080 Ti")]


@pytest.mark.parametrize("asked", [None, "0"])
def test_on_a_mixed_machine_the_order_is_told_to_be_uncertain(asked: str | None) -> None:
    assert codes(seen(asked, MIXED)) == [("device-order-unknown", "warning")]


@pytest.mark.parametrize("order", ["FASTEST_FIRST", ""])
def test_another_order_than_the_bus_is_uncertain_too(order: str) -> None:
    visibility = visible_devices(MIXED, {"CUDA_DEVICE_ORDER": order})
    assert codes(visibility) == [("device-order-unknown", "warning")]


def test_the_order_is_certain_when_it_is_that_of_the_bus() -> None:
    visibility = visible_devices(
        MIXED, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}
    )
    assert (indices(visibility), codes(visibility)) == ([1], [])


def test_the_order_is_certain_when_gpus_are_named_by_uuid() -> None:
    assert codes(seen("GPU-b,GPU-a", MIXED)) == []


def test_the_order_is_certain_when_all_gpus_are_alike() -> None:
    assert codes(seen("1", PLAIN)) == []


def test_a_machine_without_gpus_has_nothing_to_see() -> None:
    assert visible_devices([], {}) == Visibility(())
