"""Lists of indices are read as PyTorch reads them, which imitates CUDA too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.cuda import _parse_visible_devices

from specdeploy.core.visibility import InstalledGpu, visible_devices

INSTALLED = [InstalledGpu(uuid=f"GPU-{letter}", name="NVIDIA A100") for letter in "abcd"]


@given(st.lists(st.sampled_from(["0", "1", "2", " 3", "-1", "junk", "", "+2", "1x"]), min_size=1))
def test_index_lists_are_read_as_pytorch_reads_them(entries: list[str]) -> None:
    asked = ",".join(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", asked)
        theirs = _parse_visible_devices()
    seen = visible_devices(INSTALLED, {"CUDA_VISIBLE_DEVICES": asked})
    assert [choice.index for choice in seen.chosen] == theirs
