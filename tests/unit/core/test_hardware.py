"""GPUs are found by the names people use."""

from __future__ import annotations

import pytest

from specdeploy.core.hardware import GPUS, find_gpu
from specdeploy.errors import ConfigError


def test_every_name_finds_its_gpu() -> None:
    for gpu in GPUS:
        for word in (gpu.name, gpu.product, gpu.name.upper(), *gpu.aliases):
            assert find_gpu(word) is gpu


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("h100", "h100-sxm"),
        ("A100", "a100-80gb-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb-sxm"),
        ("nvidia geforce rtx 4090", "rtx-4090"),
        ("rtx_6000_ada", "rtx-6000-ada"),
    ],
)
def test_aliases_and_the_drivers_names_are_known(word: str, name: str) -> None:
    assert find_gpu(word).name == name


def test_facts_are_those_of_the_card() -> None:
    gpu = find_gpu("h200")
    assert (gpu.memory_mib, gpu.sm) == (143_771, 90)
    assert gpu.rates is not None
    assert (gpu.rates.bandwidth_gb_s, gpu.rates.half_tflops) == (4800, 989)
    assert (gpu.rates.fp8_tflops, gpu.rates.fp4_tflops, gpu.rates.nvlink_gb_s) == (1979, 0, 900)


@pytest.mark.parametrize(
    ("word", "memory", "sm"),
    [("custom:81559:9.0", 81_559, 90), ("custom:23028:86", 23_028, 86), ("custom:9:10.3", 9, 103)],
)
def test_a_card_outside_the_table_is_described(word: str, memory: int, sm: int) -> None:
    gpu = find_gpu(word)
    assert (gpu.memory_mib, gpu.sm) == (memory, sm)
    assert gpu.rates is None


@pytest.mark.parametrize("word", ["custom:", "custom:0:90", "custom:80GB:90", "custom:100:9", ""])
def test_a_word_that_names_nothing_is_refused(word: str) -> None:
    with pytest.raises(ConfigError):
        find_gpu(word)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(ConfigError) as caught:
        find_gpu("h100-sx")
    assert (caught.value.hint or "").startswith("did you mean h100-sxm?")
