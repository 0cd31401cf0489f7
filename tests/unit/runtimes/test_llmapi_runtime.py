"""The repository of the LLM API runtime, and the same settings for ``trtllm-serve``."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from llmapi_plans import a_release, asked_of, served, tuned, with_settings
from llmapi_signatures import accept, signatures

from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.adapters.triton_config import parse_model_config
from specdeploy.core.build import EnginePaths
from specdeploy.core.deployment import Deployment, SamplingDefaults, ServingSettings
from specdeploy.core.repository import RepositoryPlan
from specdeploy.errors import ConfigError
from specdeploy.runtimes.base import StepInputs
from specdeploy.runtimes.llmapi import LlmApiRuntime, settings_files
from specdeploy.runtimes.llmapi_config import plan_llm

ENGINES = EnginePaths(target="/models/target", draft="/models/draft")
INSTALLED = {"numpy", "triton_python_backend_utils", "yaml"}


def plan_of(deployment: Deployment | None = None, *, version: str = "1.2.1") -> RepositoryPlan:
    released = (deployment or served()).evolve(release=a_release(version))
    return LlmApiRuntime().plan_repository(released, engines=ENGINES)


def files_of(plan: RepositoryPlan) -> dict[str, str]:
    files = StrictRenderer(template_root()).render(plan, must_exist=False)
    return {path: content.decode() for path, content in files}


def yaml_of(plan: RepositoryPlan, path: str = "tensorrt_llm/1/model.yaml") -> dict[str, Any]:
    return dict(yaml.safe_load(files_of(plan)[path]))


def defaults(**sampling: Any) -> dict[str, Any]:  # noqa: ANN401
    settings = yaml_of(plan_of(served(sampling=SamplingDefaults(**sampling))))
    found: dict[str, Any] = settings["triton_config"]["sampling_defaults"]
    return found


@pytest.mark.parametrize("version", signatures())
@pytest.mark.parametrize("method", ["none", "draft_target", "ngram"])
def test_model_yaml_and_the_serve_file_hold_what_the_release_takes(
    version: str, method: str
) -> None:
    plan = plan_of(served(method=method), version=version)
    settings = yaml_of(plan)
    assert settings.pop("triton_config").keys() == {
        "max_batch_size",
        "decoupled",
        "sampling_defaults",
    }
    accept(version, settings)
    assert yaml_of(plan, "trtllm-serve.yaml") == {k: v for k, v in settings.items() if k != "model"}


def test_the_keys_of_a_schedule_are_numbers() -> None:
    plan = plan_of(tuned((1, 2, 4), (3, 32, 1)))
    for path in ("tensorrt_llm/1/model.yaml", "trtllm-serve.yaml"):
        schedule = yaml_of(plan, path)["speculative_config"]["draft_len_schedule"]
        assert schedule == {1: 4, 3: 1}


def test_the_same_settings_are_served_without_triton_by_a_command() -> None:
    command = ["trtllm-serve", "/models/target", "--extra_llm_api_options"]
    command.append("{repository}/trtllm-serve.yaml")
    assert plan_of().serve_command == command
    ported = plan_of(served(serving=ServingSettings(http_port=8123)))
    assert ported.serve_command == [*command, "--port", "8123"]


def test_the_model_is_decoupled_and_imports_tensorrt_llm() -> None:
    config = parse_model_config(files_of(plan_of())["tensorrt_llm/config.pbtxt"], "config.pbtxt")
    assert config.model_transaction_policy.decoupled
    assert config.parameters["llm_module"].string_value == "tensorrt_llm"


def test_every_module_that_the_model_imports_is_beside_it() -> None:
    files = {Path(p).stem: text for p, text in files_of(plan_of()).items() if p.endswith(".py")}
    imported = {
        name.partition(".")[0]
        for text in files.values()
        for node in ast.walk(ast.parse(text))
        for name in _names(node)
    }
    assert imported <= {*files, *INSTALLED, *sys.stdlib_module_names}
    assert set(files) - {"model"} <= imported


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def test_requests_that_do_not_say_are_greedy_by_what_is_left_out() -> None:
    assert defaults() == {"return_perf_metrics": True}
    assert defaults(temperature=0.7, top_k=5, top_p=0.9, seed=3) == {
        "return_perf_metrics": True,
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "seed": 3,
    }


def test_a_lossy_setting_is_marked_on_top_of_both_files() -> None:
    asked = asked_of("1.2.1", with_settings(relaxed_topk=4), method="mtp")
    renders = settings_files(asked, plan_llm(asked))
    marked = files_of(plan_of().evolve(renders=renders, copies=[]))
    told = "# LOSSY: with llmapi.relaxed_topk 4 the answers are not the target's own."
    assert [told in text.splitlines() for text in marked.values()] == [True, True]
    assert "LOSSY" not in str(files_of(plan_of()))


def test_nothing_is_drafted_at_length_0() -> None:
    assert "speculative_config" not in yaml_of(plan_of(served(draft_length=0)))


def test_there_is_nothing_to_build() -> None:
    assert LlmApiRuntime().capabilities.needs_gpu
    inputs = StepInputs(target=[], draft=[], tools={})
    assert LlmApiRuntime().plan_build(served(), inputs=inputs).steps == []


def test_the_paths_that_the_files_name_are_told() -> None:
    assert plan_of().absolute_paths == ["/models/target", "/models/draft"]


def test_without_a_release_nothing_is_planned() -> None:
    with pytest.raises(ConfigError, match="nothing tells the TensorRT-LLM version"):
        LlmApiRuntime().plan_repository(served(), engines=ENGINES)
