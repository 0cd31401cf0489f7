"""Equal weights are told without reading them whole."""

from __future__ import annotations

from pathlib import Path

from checkpoint_dirs import write_tensors

from specdeploy.adapters.weight_identity import SampledWeights


def weights(directory: Path, *, fill: int) -> str | None:
    directory.mkdir()
    write_tensors(directory, {"w": [1000]}, fill=fill)
    return SampledWeights().identify_weights(directory)


def test_copies_share_their_identity_and_other_weights_do_not(tmp_path: Path) -> None:
    first = weights(tmp_path / "a", fill=1)
    assert first is not None
    assert weights(tmp_path / "b", fill=1) == first
    assert weights(tmp_path / "c", fill=2) != first


def test_a_late_difference_in_a_large_file_is_seen(tmp_path: Path) -> None:
    for name, last in (("a", b"\0"), ("b", b"\1")):
        (tmp_path / name).mkdir()
        blocks = b"\0" * (1 << 20) + last * (1 << 20)
        (tmp_path / name / "model.safetensors").write_bytes(blocks)
    identify = SampledWeights().identify_weights
    assert identify(tmp_path / "a") != identify(tmp_path / "b")


def test_files_that_are_no_weights_of_the_model_do_not_count(tmp_path: Path) -> None:
    first = weights(tmp_path / "a", fill=1)
    second = weights(tmp_path / "b", fill=1)
    (tmp_path / "b" / "adapter_model.safetensors").write_bytes(b"\0" * 64)
    (tmp_path / "b" / "consolidated.safetensors").write_bytes(b"\0" * 64)
    assert first == second == SampledWeights().identify_weights(tmp_path / "b")


def test_a_plan_has_no_weights(tmp_path: Path) -> None:
    assert SampledWeights().identify_weights(tmp_path) is None
