"""Which commands make the engines of a pair, release by release."""

from __future__ import annotations

import pytest
from engine_plans import a_deployment, a_spec
from releases import profile_for, profiles

from specdeploy.core.deployment import Deployment, ModelUse
from specdeploy.core.models import QuantizationSpec
from specdeploy.core.release_profile import ReleaseProfile
from specdeploy.errors import ConfigError
from specdeploy.runtimes.engine_commands import EnginePlan, filled, plan_engines

ENGINE = [profile for profile in profiles() if "engine" in profile.paths]


def a_pair(
    *, kv_dtype: str = "auto", model_type: str = "llama", method: str = "draft_target"
) -> Deployment:
    """Two bf16 Llamas, four requests of 1,024 tokens, draft length 4."""
    deployment = a_deployment(precision="bf16", method=method)
    spec = a_spec("target").evolve(dtype="bfloat16", model_type=model_type)
    return deployment.evolve(target=deployment.target.evolve(spec=spec, kv_dtype=kv_dtype))


def served_in(precision: str, *, kv_dtype: str = "auto", tp: int = 1) -> Deployment:
    """The pair with its target in another precision."""
    pair = a_pair(kv_dtype=kv_dtype)
    return pair.evolve(target=pair.target.evolve(precision=precision, tp=tp))


def options(argv: list[str]) -> dict[str, str]:
    """Return the options of a command that take a value."""
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return {word: value for word, value in pairs if word.startswith("--") and value[:2] != "--"}


def convert(plan: EnginePlan) -> list[str]:
    return plan.commands[0].argv


def build(plan: EnginePlan) -> list[str]:
    return plan.commands[-1].argv


def named(profile: ReleaseProfile) -> str:
    return profile.name


@pytest.mark.parametrize("profile", ENGINE, ids=named)
def test_every_release_with_engines_builds_a_plain_pair(profile: ReleaseProfile) -> None:
    target, draft = plan_engines(a_pair(), profile)
    assert [(plan.role, [c.stage for c in plan.commands]) for plan in (target, draft)] == [
        ("target", ["convert", "build"]),
        ("draft", ["convert", "build"]),
    ]
    for plan in (target, draft):
        words = [word for word in build(plan) if word.startswith("--")]
        assert len(words) == len(set(words))
        assert {word[2:] for word in words} <= set(profile.flags)


@pytest.mark.parametrize("profile", ENGINE, ids=named)
def test_every_certain_flag_with_a_value_is_spelled_out(profile: ReleaseProfile) -> None:
    said = options(build(plan_engines(a_pair(), profile)[0]))
    for name, flag in profile.flags.items():
        if flag.certain and flag.default is not None and not flag.switch:
            assert f"--{name}" in said


def test_a_flag_that_the_release_may_not_have_is_left_to_the_builder_with_a_note() -> None:
    (plan,) = plan_engines(a_pair(method="none"), profile_for("0.19.0"))
    assert "--dora_plugin" not in build(plan)
    assert any("dora_plugin" in note for note in plan.notes)
    assert "--dora_plugin" in build(plan_engines(a_pair(), profile_for("1.2.1"))[0])


def test_the_target_expects_draft_tokens_and_the_draft_is_an_ordinary_engine() -> None:
    target, draft = (options(build(p)) for p in plan_engines(a_pair(), profile_for("0.16.0")))
    assert target["--speculative_decoding_mode"] == "draft_tokens_external"
    assert target["--max_draft_len"] == "4"
    assert "--speculative_decoding_mode" not in draft
    assert draft["--max_draft_len"] == "0"
    assert target["--use_paged_context_fmha"] == draft["--use_paged_context_fmha"] == "enable"


@pytest.mark.parametrize(("method", "length"), [("ngram", "4"), ("none", "0")])
def test_a_method_without_a_draft_model_makes_one_engine(method: str, length: str) -> None:
    (target,) = plan_engines(a_pair(method=method), profile_for("1.0.0"))
    assert options(build(target))["--max_draft_len"] == length


def test_acceptance_by_logits_needs_them_of_both_engines() -> None:
    profile = profile_for("0.19.0")
    for plan in plan_engines(a_pair(), profile, use_draft_logits=True):
        assert "--gather_generation_logits" in build(plan)
        assert plan.expected.gather_generation_logits
    for plan in plan_engines(a_pair(), profile):
        assert "--gather_generation_logits" not in build(plan)
    (alone,) = plan_engines(a_pair(method="ngram"), profile, use_draft_logits=True)
    assert not alone.expected.gather_generation_logits


def test_a_paged_cache_is_asked_for_in_the_words_of_the_release() -> None:
    old = options(build(plan_engines(a_pair(), profile_for("0.12.0"))[0]))
    new = options(build(plan_engines(a_pair(), profile_for("0.13.0"))[0]))
    assert (old["--paged_kv_cache"], "--kv_cache_type" in old) == ("enable", False)
    assert (new["--kv_cache_type"], "--paged_kv_cache" in new) == ("paged", False)


def test_scripts_are_where_the_release_has_them() -> None:
    old, new = (convert(plan_engines(a_pair(), profile_for(v))[0]) for v in ("0.19.0", "0.20.0"))
    assert old[1] == "{trtllm}/examples/llama/convert_checkpoint.py"
    assert new[1] == "{trtllm}/examples/models/core/llama/convert_checkpoint.py"


def test_fp8_weights_are_calibrated_with_every_choice_written_down() -> None:
    plan = plan_engines(served_in("fp8", kv_dtype="fp8", tp=2), profile_for("0.16.0"))[0]
    said = options(convert(plan))
    assert convert(plan)[1].endswith("quantize.py")
    assert (said["--qformat"], said["--kv_cache_dtype"], said["--tp_size"]) == ("fp8", "fp8", "2")
    assert (said["--dtype"], said["--calib_size"], said["--seed"]) == ("bfloat16", "512", "1234")
    assert options(build(plan))["--gemm_plugin"] == "disable"
    assert options(build(plan))["--workers"] == "2"


def test_an_option_that_the_script_lacks_is_not_given() -> None:
    profile = profile_for("0.16.0")
    quantize = profile.converters["quantize"].evolve(flags={"seed": 7})
    profile = profile.evolve(converters={**profile.converters, "quantize": quantize})
    said = options(convert(plan_engines(served_in("fp8"), profile)[0]))
    assert said["--seed"] == "7"
    assert "--calib_size" not in said
    assert "--cp_size" not in said


def test_weight_only_formats_are_made_by_the_conversion_script() -> None:
    argv = convert(plan_engines(served_in("int4_wo"), profile_for("0.16.0"))[0])
    assert "--use_weight_only" in argv
    assert options(argv)["--weight_only_precision"] == "int4"
    assert options(argv)["--dtype"] == "bfloat16"


def test_a_checkpoint_stored_in_32_bit_is_computed_in_16() -> None:
    pair = a_pair()
    spec = pair.target.spec.evolve(dtype="float32")
    pair = pair.evolve(target=pair.target.evolve(spec=spec, precision="int8_sq"))
    argv = convert(plan_engines(pair, profile_for("0.16.0"))[0])
    assert options(argv)["--dtype"] == "float16"


def test_an_8_bit_cache_of_a_plain_engine_is_told_to_the_conversion_script() -> None:
    for kv_dtype in ("fp8", "int8"):
        pair = a_pair(kv_dtype=kv_dtype, method="none")
        (plan,) = plan_engines(pair, profile_for("0.16.0"))
        assert f"--{kv_dtype}_kv_cache" in convert(plan)
        assert options(build(plan))["--use_paged_context_fmha"] == "disable"


def test_nvfp4_asks_for_its_plugin() -> None:
    plan = plan_engines(served_in("nvfp4"), profile_for("1.2.1"), sm=None)[0]
    assert options(build(plan))["--gemm_plugin"] == "nvfp4"


def test_a_value_that_the_release_does_not_take_is_refused() -> None:
    profile = profile_for("0.16.0")
    plugin = profile.flags["gemm_plugin"].evolve(values=["float16"])
    profile = profile.evolve(flags={**profile.flags, "gemm_plugin": plugin})
    with pytest.raises(ConfigError, match="takes no --gemm_plugin auto") as caught:
        plan_engines(a_pair(), profile)
    assert caught.value.hint == "it takes float16"


def test_a_release_without_engines_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"1\.3rc20 builds no engines"):
        plan_engines(a_pair(), profile_for("1.3.0rc20"))


def test_a_method_that_the_release_lacks_is_refused() -> None:
    profile = profile_for("0.16.0")
    profile = profile.evolve(engine_methods={"medusa": profile.engine_methods["medusa"]})
    with pytest.raises(ConfigError, match="do not speculate by draft_target") as caught:
        plan_engines(a_pair(), profile)
    assert caught.value.hint == "they have medusa"


def test_a_method_with_a_draft_model_needs_one() -> None:
    pair = a_pair().evolve(draft=None)
    with pytest.raises(ConfigError, match="draft_target needs a draft model"):
        plan_engines(pair, profile_for("0.16.0"))


def test_a_precision_that_the_release_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"nvfp4, which engines of TensorRT-LLM 0\.16 do not"):
        plan_engines(served_in("nvfp4"), profile_for("0.16.0"))


def test_a_precision_that_the_gpu_lacks_is_refused_with_what_it_has() -> None:
    with pytest.raises(ConfigError, match=r"fp8, which .* on SM 80") as caught:
        plan_engines(served_in("fp8"), profile_for("0.16.0"), sm=80)
    assert "int8_sq" in str(caught.value.hint)
    assert plan_engines(served_in("fp8"), profile_for("0.16.0"), sm=90)
    with pytest.raises(ConfigError) as caught:
        plan_engines(served_in("fp8"), profile_for("0.16.0"), sm=75)
    assert caught.value.hint == "there they have none"


def test_weights_that_are_quantized_already_are_refused() -> None:
    pair = a_pair()
    spec = pair.target.spec.evolve(quantization=QuantizationSpec(method="fp8", bits=8))
    pair = pair.evolve(target=ModelUse(path="/t", spec=spec, precision="fp8"))
    with pytest.raises(ConfigError, match=r"quantized already \(fp8\)"):
        plan_engines(pair, profile_for("0.16.0"))


@pytest.mark.parametrize(("model_type", "folder"), [("mistral", "llama"), ("qwen3", "qwen")])
def test_a_family_has_its_script(model_type: str, folder: str) -> None:
    pair = a_pair(model_type=model_type)
    assert f"/{folder}/convert" in convert(plan_engines(pair, profile_for("0.16.0"))[0])[1]


def test_a_family_without_a_known_script_is_refused() -> None:
    with pytest.raises(ConfigError, match="models of type mamba"):
        plan_engines(a_pair(model_type="mamba"), profile_for("0.16.0"))


def test_a_long_text_in_few_tokens_is_told() -> None:
    pair = a_pair()
    small = pair.evolve(limits=pair.limits.evolve(max_num_tokens=512))
    assert any("chunked context" in n for n in plan_engines(small, profile_for("0.16.0"))[0].notes)
    assert plan_engines(pair, profile_for("0.16.0"))[0].notes == []


def test_paths_of_the_machine_take_the_places_of_words_that_begin_with_them() -> None:
    values = {"trtllm": "/app/tensorrt_llm", "python": "/usr/bin/python3"}
    assert filled(["{python}", "{trtllm}/a.py", "--x", "{output}"], values) == [
        *("/usr/bin/python3", "/app/tensorrt_llm/a.py", "--x", "{output}"),
    ]
