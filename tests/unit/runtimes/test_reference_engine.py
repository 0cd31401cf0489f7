from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine_plans import a_deployment, a_plan, rendered

from specdeploy.adapters.triton_config import parse_model_config
from specdeploy.core.deployment import Deployment, ResolvedLimits, SamplingDefaults, ServingSettings

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig


def config(deployment: Deployment, model: str) -> ModelConfig:
    path = f"{model}/config.pbtxt"
    return parse_model_config(rendered(a_plan(deployment))[path], path)


def parameters(deployment: Deployment, model: str) -> dict[str, str]:
    found = config(deployment, model).parameters
    return {name: value.string_value for name, value in found.items()}


def test_a_draft_has_a_leaf_of_its_own() -> None:
    plan = a_plan(a_deployment())
    assert set(plan.models) == {
        "preprocessing",
        "tensorrt_llm",
        "tensorrt_llm_draft",
        "postprocessing",
        "speculative",
    }
    assert plan.entry_model == "speculative"


def test_prompt_lookup_needs_no_draft_model() -> None:
    plan = a_plan(a_deployment(method="ngram"))
    assert "tensorrt_llm_draft" not in plan.models
    assert plan.entry_model == "speculative"


def test_the_classic_arm_is_an_ensemble_without_our_model() -> None:
    plan = a_plan(a_deployment(method="none"))
    assert set(plan.models) == {"preprocessing", "tensorrt_llm", "postprocessing", "ensemble"}
    assert plan.entry_model == "ensemble"
    assert plan.directories == ["ensemble/1"]
    assert plan.draft_length == 0


def test_only_what_clients_stream_from_is_decoupled() -> None:
    def decoupled(deployment: Deployment, model: str) -> bool:
        return bool(config(deployment, model).model_transaction_policy.decoupled)

    speculative = a_deployment()
    assert decoupled(speculative, "speculative")
    assert not decoupled(speculative, "tensorrt_llm")
    assert not decoupled(speculative, "tensorrt_llm_draft")
    assert decoupled(a_deployment(method="none"), "tensorrt_llm")


def test_the_draft_uses_the_lean_forward_pass_and_the_target_never() -> None:
    assert parameters(a_deployment(), "tensorrt_llm_draft")["lean"] == "true"
    for method in ("draft_target", "ngram", "none"):
        assert parameters(a_deployment(method=method), "tensorrt_llm")["lean"] == "false"


def test_the_target_is_served_alike_in_both_arms() -> None:
    shared = ("gpt_model_path", "dtype", "threads", "max_requests", "max_seq_len")
    speculative = parameters(a_deployment(), "tensorrt_llm")
    classic = parameters(a_deployment(method="none"), "tensorrt_llm")
    assert [speculative[name] for name in shared] == [classic[name] for name in shared]


def test_every_setting_reaches_its_parameter() -> None:
    deployment = a_deployment(
        draft_length=3,
        limits=ResolvedLimits(max_batch_size=7, max_seq_len=333, max_num_tokens=1000),
        sampling=SamplingDefaults(temperature=0.5, top_k=9, top_p=0.75, seed=11),
        serving=ServingSettings(threads=2, max_ngram_size=5),
        end_ids=(4, 5),
    )
    speculative = parameters(deployment, "speculative")
    assert speculative == {
        "tensorrt_llm_model_name": "tensorrt_llm",
        "tensorrt_llm_draft_model_name": "tensorrt_llm_draft",
        "preprocessing_model_name": "preprocessing",
        "method": "draft_target",
        "draft_length": "3",
        "max_draft_length": "16",
        "use_draft_logits": "true",
        "max_ngram_size": "5",
        "max_requests": "7",
        "max_seq_len": "333",
        "vocab_size": "512",
        "end_ids": "[4, 5]",
        "tokenizer_file": "/models/target/tokenizer.json",
        "temperature": "0.5",
        "top_k": "9",
        "top_p": "0.75",
        "random_seed": "11",
    }
    leaf = parameters(deployment, "tensorrt_llm_draft")
    assert (leaf["gpt_model_path"], leaf["threads"]) == ("/models/draft", "2")
    assert (leaf["max_requests"], leaf["max_seq_len"]) == ("7", "333")
    assert config(deployment, "tensorrt_llm").max_batch_size == 7


def test_a_draft_of_other_rows_is_not_judged_by_its_logits() -> None:
    draft = a_deployment().draft
    assert draft is not None
    padded = draft.evolve(spec=draft.spec.evolve(vocab_size=640))
    assert parameters(a_deployment(draft=padded), "speculative")["use_draft_logits"] == "false"
    assert parameters(a_deployment(method="ngram"), "speculative")["use_draft_logits"] == "true"


def test_draft_and_target_filter_alike_by_default() -> None:
    deployment = a_deployment(sampling=SamplingDefaults(temperature=0.5, top_k=9, top_p=0.75))
    names = ("temperature", "top_k", "top_p")
    target, draft = (parameters(deployment, m) for m in ("tensorrt_llm", "tensorrt_llm_draft"))
    assert [target[n] for n in names] == [draft[n] for n in names] == ["0.5", "9", "0.75"]


def test_awkward_paths_are_written_whole() -> None:
    path = Path('/models/a "b" \\c d')
    found = parameters(a_deployment(path), "tensorrt_llm")
    assert found["gpt_model_path"] == f"{path}/target"


def test_every_module_that_a_model_imports_is_copied_beside_it() -> None:
    plan = a_plan(a_deployment())
    files = rendered(plan)
    library = {path.rsplit("/", 1)[-1][:-3] for path in files if path.endswith(".py")}
    for path, text in files.items():
        if not path.endswith(".py"):
            continue
        imported = {line.split()[1] for line in text.splitlines() if line.startswith("from ")}
        folder = path.rsplit("/", 1)[0]
        for module in imported & library:
            assert f"{folder}/{module}.py" in files, (path, module)


def test_an_ensemble_hands_on_each_of_its_inputs() -> None:
    ensemble = config(a_deployment(method="none"), "ensemble")
    used = {
        name
        for step in ensemble.ensemble_scheduling.step
        for name in step.input_map.values()
        if not name.startswith("_")
    }
    assert used == {tensor.name for tensor in ensemble.input}


def test_an_ensemble_makes_each_of_its_outputs() -> None:
    ensemble = config(a_deployment(method="none"), "ensemble")
    made = {
        name
        for step in ensemble.ensemble_scheduling.step
        for name in step.output_map.values()
        if not name.startswith("_")
    }
    assert made == {tensor.name for tensor in ensemble.output}
    assert made == {"text_output", "num_output_tokens"}


@pytest.mark.parametrize("method", ["draft_target", "ngram", "none"])
def test_threads_bound_the_server_process_as_well(method: str) -> None:
    plan = a_plan(a_deployment(method=method, serving=ServingSettings(threads=3)))
    assert plan.environment["OMP_NUM_THREADS"] == "3"
