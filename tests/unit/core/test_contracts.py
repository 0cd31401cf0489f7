from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specdeploy.core.contracts import EXTENSIONS, UPSTREAM, TensorSpec, with_extensions

# Parsed from the config.pbtxt files of tensorrtllm_backend v0.19.0; placeholders for data
# types read as TYPE_FP32.
PUBLISHED = json.loads(
    (Path(__file__).parents[2] / "data/triton_contracts_0.19.0.json").read_text()
)


def as_published(tensor: TensorSpec) -> dict[str, Any]:
    plain = {"name": tensor.name, "data_type": tensor.data_type, "dims": tensor.dims}
    flags: dict[str, Any] = {
        "reshape": [] if tensor.scalar else None,
        "optional": tensor.optional or None,
        "allow_ragged_batch": tensor.ragged or None,
    }
    return {**plain, **{name: value for name, value in flags.items() if value is not None}}


@pytest.mark.parametrize("side", ["inputs", "outputs"])
@pytest.mark.parametrize("model", ["tensorrt_llm", "tensorrt_llm_bls", "ensemble"])
def test_every_tensor_of_upstream_is_declared_as_upstream_does(model: str, side: str) -> None:
    tensors = getattr(UPSTREAM[model], side)
    assert [as_published(tensor) for tensor in tensors] == PUBLISHED[model][side]


@pytest.mark.parametrize("side", ["inputs", "outputs"])
@pytest.mark.parametrize("model", ["preprocessing", "postprocessing"])
def test_the_text_only_part_is_declared_as_upstream_does(model: str, side: str) -> None:
    for tensor in getattr(UPSTREAM[model], side):
        assert as_published(tensor) in PUBLISHED[model][side]


@pytest.mark.parametrize("model", EXTENSIONS)
def test_our_outputs_have_names_that_upstream_does_not_use(model: str) -> None:
    ours = {tensor.name for tensor in EXTENSIONS[model]}
    assert not ours & {tensor.name for tensor in UPSTREAM[model].outputs}
    assert ours <= {tensor.name for tensor in with_extensions(model).outputs}
