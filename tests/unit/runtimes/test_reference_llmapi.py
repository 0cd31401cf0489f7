from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from llmapi_support import a_deployment, a_plan

from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.adapters.triton_config import parse_model_config
from specdeploy.core.deployment import SamplingDefaults, ServingSettings
from specdeploy.core.repository import RepositoryPlan
from specdeploy.runtimes.reference import ReferenceRuntime

PAIR = Path("/engines")

# What a Triton model may import besides the files beside it.
INSTALLED = {"numpy", "tokenizers", "torch", "transformers", "triton_python_backend_utils", "yaml"}


def rendered(plan: RepositoryPlan) -> dict[str, bytes]:
    return dict(StrictRenderer(template_root()).render(plan, must_exist=False))


def model_yaml(**changes: object) -> dict[str, Any]:
    text = rendered(a_plan(PAIR, **changes))["tensorrt_llm/1/model.yaml"]
    return dict(yaml.safe_load(text))


def test_model_yaml_is_the_body_of_the_llm_constructor() -> None:
    settings = model_yaml()
    assert settings.pop("triton_config")["decoupled"] is True
    assert settings == {
        "model": "/engines/target",
        "dtype": "float32",
        "max_batch_size": 4,
        "max_num_tokens": 2048,
        "max_seq_len": 512,
        "num_threads": 1,
        "trust_remote_code": False,
        "speculative_config": {
            "decoding_type": "Draft_Target",
            "max_draft_len": 4,
            "speculative_model": "/engines/draft",
        },
    }


def test_prompt_lookup_has_no_draft_model() -> None:
    serving = ServingSettings(max_ngram_size=5)
    settings = model_yaml(method="ngram", serving=serving)
    assert settings["speculative_config"] == {
        "decoding_type": "NGram",
        "max_draft_len": 4,
        "max_matching_ngram_size": 5,
    }


@pytest.mark.parametrize("changes", [{"method": "none"}, {"draft_length": 0}])
def test_the_classic_model_is_the_same_without_speculation(changes: dict[str, object]) -> None:
    settings = model_yaml(**changes)
    assert "speculative_config" not in settings
    assert settings == {k: v for k, v in model_yaml().items() if k != "speculative_config"}


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")]
)
def test_the_precision_is_spelled_as_the_engine_spells_it(precision: str, dtype: str) -> None:
    target = a_deployment().target.evolve(precision=precision)
    assert model_yaml(target=target)["dtype"] == dtype


def test_a_request_may_ask_for_what_the_runtime_says_it_can_draft() -> None:
    most = ReferenceRuntime().capabilities.max_draft_length
    assert model_yaml()["triton_config"]["max_draft_length"] == most


def test_sampling_defaults_reach_the_model() -> None:
    sampling = SamplingDefaults(temperature=0.7, top_k=5, top_p=0.9, seed=11)
    assert model_yaml(sampling=sampling)["triton_config"]["sampling_defaults"] == {
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "seed": 11,
    }


def test_threads_reach_the_engine_and_the_numeric_libraries() -> None:
    plan = a_plan(PAIR, serving=ServingSettings(threads=3))
    assert plan.environment["OMP_NUM_THREADS"] == "3"
    assert model_yaml(serving=ServingSettings(threads=3))["num_threads"] == 3


def test_config_declares_a_decoupled_model_that_triton_does_not_batch() -> None:
    text = rendered(a_plan(PAIR))["tensorrt_llm/config.pbtxt"].decode()
    config = parse_model_config(text, "config.pbtxt")
    assert config.model_transaction_policy.decoupled
    assert config.max_batch_size == 0
    assert config.parameters["llm_module"].string_value == "reference_llm"


def test_numbers_are_declared_as_numbers() -> None:
    text = rendered(a_plan(PAIR))["tensorrt_llm/config.pbtxt"].decode()
    config = parse_model_config(text, "config.pbtxt")
    declared = {t.name: (t.data_type, list(t.dims)) for t in [*config.input, *config.output]}
    fp32, int32 = 11, 8
    assert declared["acceptance_rate"] == (fp32, [1])
    for name in (
        "total_accepted_draft_tokens",
        "total_draft_tokens",
        "num_spec_steps",
        "num_output_tokens",
        "num_draft_tokens",
    ):
        assert declared[name] == (int32, [1])


def test_every_module_that_the_model_imports_is_beside_it() -> None:
    files = {
        Path(path).stem: content
        for path, content in rendered(a_plan(PAIR)).items()
        if path.endswith(".py")
    }
    imported = {
        name.partition(".")[0]
        for content in files.values()
        for node in ast.walk(ast.parse(content))
        for name in _names(node)
    }
    assert imported <= {*files, *INSTALLED, *sys.stdlib_module_names}
    assert set(files) - {"model", "reference_llm"} <= imported


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def test_the_paths_that_the_files_name_are_told() -> None:
    assert a_plan(PAIR).absolute_paths == ["/engines/target", "/engines/draft"]
