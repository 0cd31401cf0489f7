"""What an engine will be, computed before it is built."""

from __future__ import annotations

import pytest
from engine_plans import a_spec
from releases import profile_for

from specdeploy.core.deployment import ModelUse, ResolvedLimits
from specdeploy.errors import ConfigError
from specdeploy.runtimes.engine_facts import (
    EngineFacts,
    Speculation,
    builder_changes,
    config_differences,
    engine_facts,
)

LIMITS = ResolvedLimits(max_batch_size=4, max_seq_len=1024, max_num_tokens=4096)
TARGET = Speculation(mode="draft_tokens_external", draft_length=5, reuse=True)


def a_use(precision: str = "bf16", kv_dtype: str = "auto") -> ModelUse:
    spec = a_spec().evolve(dtype="bfloat16")
    return ModelUse(path="/m", spec=spec, precision=precision, kv_dtype=kv_dtype, tp=2)


def facts(
    use: ModelUse | None = None,
    *,
    speculation: Speculation = TARGET,
    version: str = "0.16.0",
    **limits: int,
) -> EngineFacts:
    return engine_facts(use or a_use(), LIMITS.evolve(**limits), speculation, profile_for(version))


def test_the_builder_adds_the_draft_tokens_to_the_length() -> None:
    assert facts().max_seq_len == 1024 + 5
    assert facts(speculation=Speculation()).max_seq_len == 1024
    assert facts(speculation=Speculation(reuse=True)).max_draft_len == 0


@pytest.mark.parametrize(
    ("batch", "asked", "drafted", "becomes"),
    [
        (4, 4096, 5, 4096),
        (2048, 8192, 83, 172_032),
        (64, 256, 7, 512),
        (1, 4096, 5, 1024),
        (1, 8, 0, 32),
        (64, 256, 0, 256),
    ],
)
def test_the_tokens_of_a_pass_are_bounded_as_the_builder_does(
    batch: int, asked: int, drafted: int, becomes: int
) -> None:
    speculation = TARGET.evolve(draft_length=drafted) if drafted else Speculation()
    found = facts(speculation=speculation, max_batch_size=batch, max_num_tokens=asked)
    assert found.max_num_tokens == becomes


def test_what_changes_is_told_with_the_reason() -> None:
    limits = LIMITS.evolve(max_batch_size=64, max_num_tokens=256)
    length, tokens = builder_changes(limits, facts(max_batch_size=64, max_num_tokens=256))
    assert (length.setting, length.asked, length.becomes) == ("max_seq_len", 1024, 1029)
    assert (tokens.setting, tokens.asked, tokens.becomes) == ("max_num_tokens", 256, 384)
    assert "max_batch_size x (max_draft_len + 1)" in tokens.reason


def test_a_pass_is_no_larger_than_the_batch_can_fill() -> None:
    limits = LIMITS.evolve(max_batch_size=1)
    (change,) = builder_changes(limits, facts(speculation=Speculation(), max_batch_size=1))
    assert change.reason == "no more than max_batch_size x max_seq_len"


def test_nothing_changes_in_a_plain_engine_that_fits() -> None:
    assert list(builder_changes(LIMITS, facts(speculation=Speculation()))) == []


@pytest.mark.parametrize("version", ["0.16.0", "1.2.1"])
@pytest.mark.parametrize(
    ("precision", "kv_dtype", "paged", "fp8"),
    [
        ("bf16", "auto", True, False),
        ("fp8", "bf16", True, False),
        ("fp8", "fp8", True, True),
        ("w4a8", "fp8", True, True),
        ("bf16", "fp8", False, False),
        ("int8_sq", "int8", False, False),
    ],
)
def test_the_attention_kernels_follow_weights_and_cache(
    version: str, precision: str, kv_dtype: str, *, paged: bool, fp8: bool
) -> None:
    found = facts(a_use(precision, kv_dtype), speculation=Speculation(), version=version)
    assert (found.use_paged_context_fmha, found.use_fp8_context_fmha) == (paged, fp8)


@pytest.mark.parametrize("speculation", [TARGET, Speculation(reuse=True)])
@pytest.mark.parametrize(("precision", "kv_dtype"), [("bf16", "fp8"), ("int8_sq", "int8")])
def test_speculation_without_reuse_of_the_cache_is_refused(
    speculation: Speculation, precision: str, kv_dtype: str
) -> None:
    with pytest.raises(ConfigError, match=f"{precision} weights and a KV cache of {kv_dtype}"):
        facts(a_use(precision, kv_dtype), speculation=speculation)


def test_a_release_without_the_rule_has_paged_attention_for_every_cache() -> None:
    profile = profile_for("1.2.1").evolve(builder_rules={})
    found = engine_facts(a_use("bf16", "int8"), LIMITS, TARGET, profile)
    assert found.use_paged_context_fmha


def test_a_cache_that_engines_do_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="no nvfp4 KV cache"):
        facts(a_use(kv_dtype="nvfp4"))


def built(expected: EngineFacts) -> dict[str, dict[str, object]]:
    """Return the config.json of an engine that is as planned."""
    plugins = {
        "tokens_per_block": 32,
        "use_paged_context_fmha": expected.use_paged_context_fmha,
        "use_fp8_context_fmha": expected.use_fp8_context_fmha,
    }
    return {
        "pretrained_config": {
            "mapping": {"tp_size": 2, "pp_size": 1},
            "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
        },
        "build_config": {
            "max_batch_size": 4,
            "max_seq_len": 1029,
            "max_num_tokens": 4096,
            "max_draft_len": 5,
            "speculative_decoding_mode": 2,
            "gather_generation_logits": False,
            "plugin_config": plugins,
        },
    }


def test_an_engine_that_is_as_planned_differs_in_nothing() -> None:
    expected = facts(a_use("fp8", "fp8"))
    assert list(config_differences(built(expected), expected)) == []


def test_an_engine_that_is_not_as_planned_is_told_with_both_values() -> None:
    expected = facts(a_use("fp8", "fp8"))
    config = built(expected)
    config["build_config"]["speculative_decoding_mode"] = 1
    del config["pretrained_config"]["mapping"]
    assert list(config_differences(config, expected)) == [
        "pretrained_config.mapping.tp_size is None, planned was 2",
        "build_config.speculative_decoding_mode is 1, planned was 2",
    ]
    assert len(list(config_differences({}, expected))) == 12
