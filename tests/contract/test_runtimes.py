"""What every runtime promises, whatever it plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
from engine_plans import a_deployment, a_trtllm_deployment, rendered

from specdeploy.adapters.templates import template_root
from specdeploy.adapters.triton_config import parse_model_config
from specdeploy.core.build import EnginePaths, InputFile
from specdeploy.core.deployment import Deployment
from specdeploy.core.repository import Method, Shape
from specdeploy.runtimes import RUNTIMES
from specdeploy.runtimes.base import Runtime, StepInputs

ENGINES = EnginePaths(target="/models/target", draft="/models/draft")
INPUTS = StepInputs(
    target=[InputFile(path="/models/target/tokenizer.json", size_bytes=1, sha256="a")],
    draft=[InputFile(path="/models/draft/config.json", size_bytes=1, sha256="b")],
    tools={"torch": "2.13"},
)


def plannable() -> Iterator[tuple[str, Shape, Method]]:
    for name, runtime in RUNTIMES.items():
        for shape in runtime.capabilities.shapes:
            for method in runtime.capabilities.methods:
                yield name, shape, method


@pytest.fixture(params=plannable(), ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[Runtime, Deployment]:
    name, shape, method = request.param
    runtime = RUNTIMES[name]
    make = a_trtllm_deployment if runtime.capabilities.needs_gpu else a_deployment
    deployment = make(method=method, shape=shape).evolve(runtime=name)
    return runtime, deployment


def test_a_runtime_is_known_by_its_own_name() -> None:
    assert all(runtime.name == name for name, runtime in RUNTIMES.items())


def test_capabilities_are_words_of_the_settings_file() -> None:
    for runtime in RUNTIMES.values():
        assert set(runtime.capabilities.methods) <= set(get_args(Method))
        assert set(runtime.capabilities.shapes) <= set(get_args(Shape))
        assert runtime.capabilities.max_draft_length >= 8


def test_plans_are_deterministic(case: tuple[Runtime, Deployment]) -> None:
    runtime, deployment = case
    first, second = (runtime.plan_repository(deployment, engines=ENGINES) for _ in range(2))
    assert first.digest() == second.digest()
    built = [runtime.plan_build(deployment, inputs=INPUTS).digest() for _ in range(2)]
    assert built[0] == built[1]


def test_every_input_of_a_step_is_a_source_file(case: tuple[Runtime, Deployment]) -> None:
    runtime, deployment = case
    sources = {file.path for file in [*INPUTS.target, *INPUTS.draft]}
    for step in runtime.plan_build(deployment, inputs=INPUTS).steps:
        assert {file.path for file in step.inputs} <= sources
        assert "{output}" in step.argv


def test_every_file_renders_and_every_config_is_of_its_folder(
    case: tuple[Runtime, Deployment],
) -> None:
    runtime, deployment = case
    plan = runtime.plan_repository(deployment, engines=ENGINES)
    files = rendered(plan)
    configs = {path for path in files if path.endswith("config.pbtxt")}
    assert configs == {f"{model}/config.pbtxt" for model in plan.models}
    for path in configs:
        parse_model_config(files[path], path)


def test_the_entry_model_is_one_of_the_models(case: tuple[Runtime, Deployment]) -> None:
    runtime, deployment = case
    plan = runtime.plan_repository(deployment, engines=ENGINES)
    assert plan.entry_model in plan.models
    assert plan.method == deployment.method
    assert plan.shape == deployment.shape


def test_every_copied_file_exists_and_no_path_is_written_twice(
    case: tuple[Runtime, Deployment],
) -> None:
    runtime, deployment = case
    plan = runtime.plan_repository(deployment, engines=ENGINES)
    paths = [copy.path for copy in plan.copies] + [item.path for item in plan.renders]
    assert len(set(paths)) == len(paths)
    for copy in plan.copies:
        assert (template_root() / copy.source).is_file()


def test_every_model_with_python_has_its_model_file(case: tuple[Runtime, Deployment]) -> None:
    runtime, deployment = case
    plan = runtime.plan_repository(deployment, engines=ENGINES)
    files = rendered(plan)
    for model in plan.models:
        if 'backend: "python"' in files[f"{model}/config.pbtxt"]:
            assert f"{model}/1/model.py" in files
