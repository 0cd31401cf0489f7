"""The engine runtime: what a build will run, what must come out, and what is refused."""

from __future__ import annotations

import pytest
from engine_plans import a_deployment, a_trtllm_deployment
from releases import profile_for

from specdeploy.core.build import BuildPlan, BuildStep, EnginePaths, InputFile
from specdeploy.core.deployment import Deployment
from specdeploy.core.hardware import find_gpu
from specdeploy.errors import ConfigError, InfeasiblePlanError
from specdeploy.runtimes.base import StepInputs
from specdeploy.runtimes.engine import EngineRuntime

INPUTS = StepInputs(
    target=[InputFile(path="/models/target/tokenizer.json", size_bytes=1, sha256="a")],
    draft=[InputFile(path="/models/draft/config.json", size_bytes=1, sha256="b")],
    tools={},
)


def planned(deployment: Deployment) -> BuildPlan:
    return EngineRuntime().plan_build(deployment, inputs=INPUTS)


def on_two_gpus(method: str = "draft_target") -> Deployment:
    """The pair with its target on two GPUs."""
    deployment = a_trtllm_deployment(method=method)
    return deployment.evolve(target=deployment.target.evolve(tp=2))


def word_after(step: BuildStep, flag: str) -> str:
    return step.argv[step.argv.index(flag) + 1]


def test_each_engine_is_converted_and_then_built_the_targets_first() -> None:
    plan = planned(a_trtllm_deployment())
    assert [(step.role, step.stage, step.log_name) for step in plan.steps] == [
        ("target", "checkpoint", "convert-target"),
        ("target", "engine", "build-target"),
        ("draft", "checkpoint", "convert-draft"),
        ("draft", "engine", "build-draft"),
    ]
    assert plan.tools == {"tensorrt_llm": "1.2.1"}
    assert [step.title for step in plan.steps[:2]] == ["target's checkpoint", "target"]


def test_prompt_lookup_needs_the_targets_engine_alone() -> None:
    assert {step.role for step in planned(a_trtllm_deployment(method="ngram")).steps} == {"target"}


def test_a_build_reads_what_its_conversion_wrote() -> None:
    convert, build, *_ = planned(a_trtllm_deployment()).steps
    assert word_after(convert, "--output_dir") == "{output}"
    assert word_after(build, "--checkpoint_dir") == "{checkpoint}"
    assert word_after(build, "--output_dir") == "{output}"
    assert [file.path for file in convert.inputs] == ["/models/target/tokenizer.json"]
    assert build.inputs == []


def test_another_checkpoint_makes_another_engine() -> None:
    changed = INPUTS.evolve(target=[INPUTS.target[0].evolve(sha256="c")])
    plans = [EngineRuntime().plan_build(a_trtllm_deployment(), inputs=i) for i in (INPUTS, changed)]
    digests = [[step.plan_digest(plan.tools) for step in plan.steps] for plan in plans]
    same = [first == second for first, second in zip(*digests, strict=True)]
    assert same == [False, False, True, True]


def test_another_version_makes_other_engines() -> None:
    plans = [planned(a_trtllm_deployment(version)) for version in ("1.2.0", "1.2.1")]
    first, second = ([step.plan_digest(p.tools) for step in p.steps] for p in plans)
    assert not set(first) & set(second)


def test_the_folder_of_the_sources_does_not_change_an_engine() -> None:
    deployment = a_trtllm_deployment()
    plans = [planned(deployment.evolve(trtllm_source=folder)) for folder in ("/a", "/b")]
    assert plans[0].steps == plans[1].steps
    assert [plan.places for plan in plans] == [{"trtllm": "/a"}, {"trtllm": "/b"}]
    assert planned(deployment).places == {}


def test_a_timing_cache_is_of_one_version_and_one_kind_of_gpu() -> None:
    deployment = a_trtllm_deployment()
    caches = [
        word_after(planned(d).steps[1], "--output_timing_cache")
        for d in (deployment, deployment.evolve(gpu=find_gpu("h100-sxm")))
    ]
    assert caches == ["{workspace}/timing-1.2.1.cache", "{workspace}/timing-1.2.1-sm90.cache"]


def test_every_rank_has_to_write_its_file() -> None:
    convert, build, *_ = planned(on_two_gpus()).steps
    assert convert.files == ["config.json", "rank0.safetensors", "rank1.safetensors"]
    assert build.files == ["config.json", "rank0.engine", "rank1.engine"]


def test_an_engine_has_to_say_what_was_planned_and_its_checkpoint_the_same() -> None:
    convert, build, *_ = planned(on_two_gpus()).steps
    assert build.expected["version"] == "1.2.1"
    assert build.expected["build_config.max_draft_len"] == 4
    assert build.expected["build_config.speculative_decoding_mode"] == 2
    assert convert.expected == {
        "mapping.tp_size": 2,
        "quantization.quant_algo": None,
        "quantization.kv_cache_quant_algo": None,
    }


def test_what_the_builder_changes_is_told_with_its_step() -> None:
    build = planned(a_trtllm_deployment()).steps[1]
    assert [(c.setting, c.asked, c.becomes) for c in build.changes] == [
        ("max_seq_len", 1024, 1028),
    ]


def test_notes_of_the_release_are_told_with_the_engines() -> None:
    deployment = a_trtllm_deployment()
    assert deployment.release is not None
    decided = deployment.release.decided.evolve(notes=["facts of another version"])
    plan = planned(deployment.evolve(release=deployment.release.evolve(decided=decided)))
    assert "facts of another version" in plan.steps[1].notes
    assert plan.steps[0].notes == []


def test_the_room_of_a_step_is_estimated_from_its_weights() -> None:
    one, two = planned(a_trtllm_deployment()), planned(on_two_gpus())
    assert one.steps[0].disk_bytes > 0
    assert two.steps[1].disk_bytes == pytest.approx(one.steps[1].disk_bytes, abs=2)


def test_more_gpus_than_there_are_is_refused() -> None:
    with pytest.raises(InfeasiblePlanError, match=r"takes 2 GPUs \(tp\), and hardware.count is 1"):
        planned(on_two_gpus().evolve(gpu_count=1))
    assert planned(on_two_gpus().evolve(gpu_count=2)).steps
    assert planned(on_two_gpus(method="ngram").evolve(gpu_count=2)).steps


def test_an_engine_that_takes_no_draft_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match="refuses every draft token"):
        planned(a_trtllm_deployment(draft_length=0))


def test_a_target_whose_tokenizer_no_model_could_read_is_refused_before_it_is_built() -> None:
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json") as error:
        EngineRuntime().plan_build(a_trtllm_deployment(), inputs=INPUTS.evolve(target=[]))
    assert error.value.hint


def test_an_engine_is_recorded_with_the_kind_of_gpu_that_it_is_for() -> None:
    deployment = a_trtllm_deployment()
    built = [planned(d).steps[1] for d in (deployment, deployment.evolve(gpu=find_gpu("l40s")))]
    assert [step.settings["sm"] for step in built] == [None, 89]


def test_without_a_version_nothing_is_planned() -> None:
    deployment = a_deployment(precision="bf16", runtime="engine")
    with pytest.raises(ConfigError, match="nothing tells the TensorRT-LLM version"):
        planned(deployment)
    with pytest.raises(ConfigError, match="nothing tells the TensorRT-LLM version"):
        EngineRuntime().plan_repository(deployment, engines=EnginePaths(target="/e"))


def test_precision_that_the_gpu_lacks_is_refused() -> None:
    deployment = a_trtllm_deployment("0.19.0", gpu=find_gpu("a100"))
    deployment = deployment.evolve(target=deployment.target.evolve(precision="fp8"))
    with pytest.raises(ConfigError, match="do not have on SM 80"):
        planned(deployment)


def test_logits_are_gathered_where_they_decide() -> None:
    greedy = a_trtllm_deployment()
    sampled = greedy.evolve(sampling=greedy.sampling.evolve(temperature=0.7))
    wanted = ["--gather_generation_logits" in planned(d).steps[1].argv for d in (greedy, sampled)]
    assert wanted == [False, True]
    assert profile_for("1.2.1").flags["gather_generation_logits"].switch
