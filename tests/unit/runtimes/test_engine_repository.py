"""The Triton repository of TensorRT engines, release by release."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from engine_plans import a_trtllm_deployment, rendered
from planning_models import model_named
from releases import profile_for, profiles

from specdeploy.adapters.triton_config import parse_model_config
from specdeploy.core.build import EnginePaths, InputFile
from specdeploy.core.deployment import Deployment, ModelUse, ResolvedLimits
from specdeploy.core.hardware import find_gpu
from specdeploy.core.memory import GpuMemory, MemoryRequest, plan_memory
from specdeploy.core.memory_records import LoadOrder
from specdeploy.core.models import ModelSpec
from specdeploy.core.release_profile import ReleaseProfile
from specdeploy.core.served import ServedPair, serve_model
from specdeploy.errors import ConfigError, InfeasiblePlanError
from specdeploy.runtimes.base import StepInputs
from specdeploy.runtimes.engine import EngineRuntime
from specdeploy.runtimes.engine_repository import ABSENT, leaf_contract, plan_trtllm_repository

ENGINE = [profile for profile in profiles() if "engine" in profile.paths]
# Parsed from the config.pbtxt files of tensorrtllm_backend; a release that is left out has the
# tensors of the one before it.
PUBLISHED = json.loads((Path(__file__).parents[2] / "data/leaf_tensors.json").read_text())
ENGINES = EnginePaths(target="/engines/a target", draft="/engines/draft")
PARAMETER = re.compile(r'key: "(\w+)" value: { string_value: "([^"]*)" }')


def named(profile: ReleaseProfile) -> str:
    return profile.name


def files(deployment: Deployment) -> dict[str, str]:
    return rendered(EngineRuntime().plan_repository(deployment, engines=ENGINES))


def parameters(deployment: Deployment, model: str = "tensorrt_llm") -> dict[str, str]:
    return dict(PARAMETER.findall(files(deployment)[f"{model}/config.pbtxt"]))


def config(deployment: Deployment, model: str) -> Any:  # noqa: ANN401 - protobuf has no types
    path = f"{model}/config.pbtxt"
    return parse_model_config(files(deployment)[path], path)


def llama_70b(**changes: object) -> Deployment:
    """Llama 70B in FP8 on two GPUs, and the 1B on the first of them."""

    def use(spec: ModelSpec, precision: str, tp: int) -> ModelUse:
        return ModelUse(path=f"/m/{tp}", spec=spec, precision=precision, tp=tp)

    return a_trtllm_deployment(
        target=use(model_named("Llama-3.3-70B"), "fp8", 2),
        draft=use(model_named("Llama-3.2-1B"), "bf16", 1),
        limits=ResolvedLimits(max_batch_size=8, max_seq_len=8192, max_num_tokens=8192),
    ).evolve(**changes)


@pytest.mark.parametrize("profile", ENGINE, ids=named)
def test_every_variable_of_the_template_is_filled_or_left_out_on_purpose(
    profile: ReleaseProfile,
) -> None:
    deployment = a_trtllm_deployment(profile.versions[0])
    renamed = {"engine_dir": "gpt_model_path", "batching_strategy": "gpt_model_type"}
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        written = parameters(deployment, model)
        assert written["batch_scheduler_policy"] == "guaranteed_no_evict"
        for name in profile.template_keys["tensorrt_llm"].text:
            if name not in {"triton_backend", *ABSENT}:
                assert renamed.get(name, name) in written
        theirs = {*profile.template_keys["tensorrt_llm"].text, *renamed.values()}
        assert set(written) <= {*theirs, "FORCE_CPU_ONLY_INPUT_TENSORS", "executor_worker_path"}


def test_a_variable_that_nobody_fills_is_refused() -> None:
    profile = profile_for("1.2.1")
    keys = profile.template_keys["tensorrt_llm"]
    more = keys.evolve(text=[*keys.text, "brand_new"])
    newer = profile.evolve(template_keys={**profile.template_keys, "tensorrt_llm": more})
    with pytest.raises(ConfigError, match="nothing fills brand_new"):
        plan_trtllm_repository(a_trtllm_deployment(), newer, engines=ENGINES)


@pytest.mark.parametrize("version", PUBLISHED)
def test_the_leaf_has_the_tensors_of_its_release(version: str) -> None:
    contract = leaf_contract(profile_for(version))
    for side in ("inputs", "outputs"):
        ours = {
            " ".join([t.name, t.data_type, json.dumps(t.dims)] + ["optional"] * t.optional)
            for t in getattr(contract, side)
        }
        theirs = {
            line.replace("features TYPE_FP32", "features TYPE_FP16")
            for line in PUBLISHED[version][side]
        }
        assert ours - theirs == set()
        # An optional input of three releases that nothing here sends.
        assert {line.partition(" ")[0] for line in theirs - ours} <= {"return_kv_cache_reuse_stats"}


def test_the_leaves_are_called_one_answer_at_a_time_on_the_cpu_side() -> None:
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        leaf = config(a_trtllm_deployment(), model)
        assert leaf.backend == "tensorrtllm"
        assert not leaf.model_transaction_policy.decoupled
        assert [(group.count, group.kind) for group in leaf.instance_group] == [(1, 2)]
        assert leaf.max_batch_size == 4


def test_speculation_has_what_it_cannot_do_without() -> None:
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        written = parameters(a_trtllm_deployment("0.16.0"), model)
        assert written["enable_kv_cache_reuse"] == "true"
        assert written["exclude_input_in_output"] == "true"
        assert written["enable_chunked_context"] == "false"
        assert written["max_beam_width"] == "1"


def test_each_leaf_names_its_own_engine_and_gpus() -> None:
    deployment = llama_70b()
    target, draft = (parameters(deployment, m) for m in ("tensorrt_llm", "tensorrt_llm_draft"))
    assert (target["gpt_model_path"], target["gpu_device_ids"]) == ("/engines/a target", "0,1")
    assert (draft["gpt_model_path"], draft["gpu_device_ids"]) == ("/engines/draft", "0")


def test_prompt_lookup_has_no_draft_model_and_more_of_the_memory() -> None:
    deployment = a_trtllm_deployment(method="ngram")
    plan = EngineRuntime().plan_repository(deployment, engines=ENGINES)
    assert plan.models == ["preprocessing", "tensorrt_llm", "postprocessing", "speculative"]
    assert "/engines/draft" not in plan.absolute_paths
    assert parameters(deployment)["kv_cache_free_gpu_mem_fraction"] == "0.9"
    assert parameters(deployment, "speculative")["tensorrt_llm_draft_model_name"] == ""


def test_without_a_gpu_both_pools_hold_every_whole_request() -> None:
    for model in ("tensorrt_llm", "tensorrt_llm_draft"):
        written = parameters(a_trtllm_deployment(), model)
        # 1,024 tokens and 4 drafted ones are 33 blocks of 32, for four requests.
        assert written["max_tokens_in_paged_kv_cache"] == str(33 * 32 * 4)
        assert written["kv_cache_free_gpu_mem_fraction"] == "0.5"


def test_on_a_named_gpu_both_models_have_the_same_cap_and_shares_below_1() -> None:
    deployment = llama_70b(gpu=find_gpu("h100-sxm"))
    target, draft = (parameters(deployment, m) for m in ("tensorrt_llm", "tensorrt_llm_draft"))
    cap = "max_tokens_in_paged_kv_cache"
    assert target[cap] == draft[cap]
    assert int(target[cap]) % 32 == 0
    for written in (target, draft):
        assert 0 < float(written["kv_cache_free_gpu_mem_fraction"]) < 1


def test_the_share_of_each_model_is_enough_whichever_loads_first() -> None:
    deployment = llama_70b(gpu=find_gpu("h100-sxm"))
    assert deployment.draft is not None
    models = {"target": deployment.target, "draft": deployment.draft}
    served = {r: serve_model(u.spec, precision=u.precision, tp=u.tp) for r, u in models.items()}
    pair = ServedPair(served["target"], served["draft"], "draft_target", through_bls=True)
    wanted: dict[str, list[float]] = {"tensorrt_llm": [], "tensorrt_llm_draft": []}
    for order in get_args(LoadOrder):
        plan = plan_memory(
            MemoryRequest(
                pair, GpuMemory.of(find_gpu("h100-sxm")), 8192, draft_length=4, load_order=order
            )
        )
        assert plan.draft is not None
        wanted["tensorrt_llm"].append(plan.target.kv_cache_free_gpu_mem_fraction)
        wanted["tensorrt_llm_draft"].append(plan.draft.kv_cache_free_gpu_mem_fraction)
    for model, shares in wanted.items():
        written = float(parameters(deployment, model)["kv_cache_free_gpu_mem_fraction"])
        assert written == pytest.approx(max(shares), rel=1e-5)
        assert min(shares) < max(shares)


def test_a_pair_that_does_not_fit_the_gpu_is_refused_with_what_would() -> None:
    with pytest.raises(InfeasiblePlanError, match="does not fit a10") as error:
        files(llama_70b(gpu=find_gpu("a10")))
    assert error.value.exit_code == 4
    tokenizer = InputFile(path="/m/2/tokenizer.json", size_bytes=1, sha256="a")
    inputs = StepInputs(target=[tokenizer], draft=[], tools={})
    with pytest.raises(InfeasiblePlanError, match="does not fit l4:"):
        EngineRuntime().plan_build(llama_70b(gpu=find_gpu("l4")), inputs=inputs)
    lookup = llama_70b(gpu=find_gpu("h100-sxm"), method="ngram", draft=None)
    assert parameters(lookup)["gpu_device_ids"] == "0,1"


def test_scores_decide_only_where_sampling_is_the_default_and_both_are_as_wide() -> None:
    deployment = a_trtllm_deployment()
    sampled = deployment.evolve(sampling=deployment.sampling.evolve(temperature=0.7))
    assert sampled.draft is not None
    wider = sampled.draft.spec.evolve(vocab_size=600)
    apart = sampled.evolve(draft=sampled.draft.evolve(spec=wider))
    told = [
        parameters(d, "speculative")["use_draft_logits"]
        for d in (deployment, sampled, apart, sampled.evolve(method="ngram", draft=None))
    ]
    assert told == ["false", "true", "false", "false"]


def test_the_draft_length_of_a_request_is_at_most_what_the_engine_takes() -> None:
    assert parameters(a_trtllm_deployment(), "speculative")["max_draft_length"] == "4"


def test_paths_outside_are_listed_and_the_servers_own_apart() -> None:
    plan = EngineRuntime().plan_repository(a_trtllm_deployment(), engines=ENGINES)
    assert plan.absolute_paths == [
        "/models/target/tokenizer.json",
        "/engines/a target",
        "/engines/draft",
    ]
    assert plan.server_paths == ["/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"]
    assert plan.directories == ["tensorrt_llm/1", "tensorrt_llm_draft/1"]
