"""Versions of what build steps run are known before anything is written."""

from __future__ import annotations

from importlib import metadata
from importlib.metadata import PackageNotFoundError

import pytest

from specdeploy.adapters import tools
from specdeploy.adapters.tools import InstalledTools
from specdeploy.errors import MissingToolError


def test_the_reference_runtime_is_built_by_torch_safetensors_and_our_converter() -> None:
    versions = InstalledTools().versions("reference")
    assert versions["torch"] == metadata.version("torch")
    assert set(versions) == {"torch", "safetensors", "reference_convert"}


def test_a_missing_extra_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(tools, "version", absent)
    with pytest.raises(MissingToolError, match="safetensors and torch") as caught:
        InstalledTools().versions("reference")
    assert caught.value.hint == "pip install 'specdeploy[reference]'"


def test_a_runtime_without_build_steps_needs_nothing() -> None:
    assert InstalledTools().versions("llmapi") == {}


def test_a_machine_without_tensorrt_llm_tells_none(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"tensorrt_llm": "1.2.1"}
    monkeypatch.setattr(tools, "_version", versions.get)
    assert InstalledTools().trtllm() == "1.2.1"
    versions.clear()
    assert InstalledTools().trtllm() is None
