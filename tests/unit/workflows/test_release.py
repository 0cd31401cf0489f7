"""Which TensorRT-LLM everything is made for, and whether it can be made here."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import load
from engine_plans import a_deployment, a_trtllm_deployment
from releases import profiles

from specdeploy.core.deployment import Deployment
from specdeploy.errors import ConfigError, MissingToolError
from specdeploy.workflows.release import require_tools, with_release


def decided(folder: Path, runtime: str, *, host: str | None = None, more: str = "") -> Deployment:
    text = f"target: {{path: t}}\nruntime: {{name: engine{runtime}}}\n{more}"
    deployment = a_deployment(precision="bf16", runtime="engine")
    return with_release(deployment, load(folder, text), profiles=profiles, host=host)


def version(deployment: Deployment) -> tuple[str, str]:
    assert deployment.release is not None
    return deployment.release.decided.version, deployment.release.decided.decided_by


def test_the_settings_come_first_then_the_container_then_the_host(tmp_path: Path) -> None:
    asked = ', trtllm_version: "0.19.0"'
    assert version(decided(tmp_path, asked)) == ("0.19.0", "config")
    assert version(decided(tmp_path, ", container: '25.05'", host="1.2.1")) == (
        "0.19.0",
        "container",
    )
    assert version(decided(tmp_path, "", host="1.2.1")) == ("1.2.1", "host")


def test_nothing_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing tells the TensorRT-LLM version") as error:
        decided(tmp_path, "")
    assert error.value.exit_code == 2


def test_the_gpus_and_the_sources_come_from_the_settings(tmp_path: Path) -> None:
    plain = decided(tmp_path, ', trtllm_version: "1.2.1"')
    assert (plain.gpu, plain.gpu_count, plain.trtllm_source) == (None, None, None)
    full = decided(
        tmp_path,
        ', trtllm_version: "1.2.1", trtllm_source: /src',
        more="hardware: {gpu: h100-sxm, count: 2}\n",
    )
    assert full.gpu is not None
    assert (full.gpu.sm, full.gpu_count, full.trtllm_source) == (90, 2, "/src")


def test_a_runtime_without_gpus_needs_no_release(tmp_path: Path) -> None:
    deployment = a_deployment()
    loaded = load(tmp_path, "target: {path: t}\n")
    assert with_release(deployment, loaded, profiles=profiles, host="1.2.1") == deployment
    require_tools(deployment, host=None)


def test_a_build_is_refused_where_its_tools_are_not() -> None:
    with pytest.raises(MissingToolError, match=r"1\.2\.1 is not installed here") as error:
        require_tools(a_trtllm_deployment(), host=None)
    assert "tritonserver:26.07-trtllm-python-py3" in str(error.value.hint)


def test_a_version_without_a_container_is_refused_too() -> None:
    with pytest.raises(MissingToolError) as error:
        require_tools(a_trtllm_deployment("1.2.0rc1"), host=None)
    assert "<release>" in str(error.value.hint)


def test_a_build_is_refused_by_tools_of_another_version() -> None:
    deployment = a_trtllm_deployment(trtllm_source="/src")
    with pytest.raises(ConfigError, match=r"is 1\.2\.1 and the tools of this machine have"):
        require_tools(deployment, host="1.2.0")
    require_tools(deployment, host="1.2.1")


def test_a_build_has_to_know_where_the_scripts_are() -> None:
    with pytest.raises(ConfigError, match=r"runtime\.trtllm_source is not set"):
        require_tools(a_trtllm_deployment(), host="1.2.1")
