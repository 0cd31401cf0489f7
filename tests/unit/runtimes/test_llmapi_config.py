"""Which arguments ``LLM`` is given, release by release."""

from __future__ import annotations

from typing import Any

import pytest
from llmapi_plans import (
    asked_of,
    latent,
    planned,
    quantized,
    refusal,
    served,
    with_settings,
    with_target,
)
from llmapi_signatures import accept, signatures
from releases import profiles

from specdeploy.core.deployment import Deployment, TunedServing
from specdeploy.errors import ConfigError
from specdeploy.runtimes.llmapi_config import graph_sizes, plan_llm
from specdeploy.runtimes.llmapi_question import Speculation, question

OLD, LOWER, NEWEST = "1.0.0", "1.2.0", "1.4.0rc4"


def section(name: str, version: str = LOWER, deployment: Deployment | None = None) -> Any:  # noqa: ANN401
    return planned(version, deployment).arguments[name]


@pytest.mark.parametrize("version", signatures())
@pytest.mark.parametrize("method", [None, "draft_target", "ngram", "eagle3", "mtp", "auto"])
def test_every_argument_is_one_that_the_release_takes(version: str, method: str | None) -> None:
    accept(version, planned(version, method=method).arguments)


@pytest.mark.parametrize("method", ["sa", "pard", "dflash"])
def test_the_newest_methods_are_written_with_the_keys_of_the_newest_release(method: str) -> None:
    accept(NEWEST, planned(NEWEST, method=method).arguments)
    assert "does not speculate by" in refusal(served(), method=method)


def test_a_release_that_was_read_in_part_says_what_is_not_certain() -> None:
    (told,) = [note for note in planned(NEWEST, method="ngram").notes if "not certain" in note]
    assert "max_batch_size" in told
    assert "cuda_graph_config.batch_sizes" in told
    assert "Draft_Target's keys" in planned(NEWEST).notes[-1]
    assert not [note for note in planned(LOWER).notes if "not certain" in note]


def test_limits_and_model_are_spelled_out() -> None:
    arguments = planned(LOWER, method=None).arguments
    assert {key: arguments[key] for key in list(arguments)[:10]} == {
        "model": "/models/target",
        "dtype": "bfloat16",
        "trust_remote_code": False,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "max_batch_size": 4,
        "max_num_tokens": 2048,
        "max_seq_len": 512,
        "enable_chunked_prefill": False,
        "disable_overlap_scheduler": False,
    }
    assert "speculative_config" not in arguments


def test_metrics_are_asked_for_where_the_release_has_the_key() -> None:
    assert "return_perf_metrics" not in planned(OLD).arguments
    assert planned("1.1.0").arguments["return_perf_metrics"] is True


def test_a_quantized_checkpoint_decides_its_own_type() -> None:
    assert planned(LOWER, quantized("fp8")).arguments["dtype"] == "auto"


@pytest.mark.parametrize("precision", ["fp32", "fp8"])
def test_weights_that_are_not_stored_so_are_not_served_so(precision: str) -> None:
    assert f"target.precision is {precision}" in refusal(with_target(served(), precision=precision))


def test_a_precision_is_held_against_the_gpu_that_is_named() -> None:
    assert "does not run on SM 90" in refusal(quantized("nvfp4"))
    assert planned(LOWER, quantized("nvfp4"), sm=None).lossy == []
    assert planned(LOWER, quantized("nvfp4"), sm=100).lossy == []
    assert planned(LOWER, quantized("gptq")).lossy == []


def test_the_kv_cache_has_the_type_that_was_set() -> None:
    assert section("kv_cache_config") == {
        "enable_block_reuse": True,
        "free_gpu_memory_fraction": 0.9,
        "dtype": "auto",
    }
    fp8 = with_target(served(), kv_dtype="fp8")
    assert section("kv_cache_config", deployment=fp8)["dtype"] == "fp8"
    assert (
        section("kv_cache_config", deployment=with_target(served(), kv_dtype="bf16"))["dtype"]
        == "auto"
    )
    assert "does not have" in refusal(with_target(served(), kv_dtype="int8"))


def test_one_kv_cache_config_holds_for_both_models() -> None:
    pair = served()
    assert pair.draft is not None
    other = pair.evolve(draft=pair.draft.evolve(kv_dtype="fp8"))
    assert "holds for both" in refusal(other)
    planned(LOWER, with_target(other, kv_dtype="fp8"))
    planned(LOWER, other, method=None)


def test_the_share_of_memory_is_the_users_else_tunings_else_the_engines() -> None:
    by_tuning = served(tuned=TunedServing(kv_fraction=0.4))
    assert section("kv_cache_config", deployment=by_tuning)["free_gpu_memory_fraction"] == 0.4
    by_user = by_tuning.evolve(llmapi=with_settings(kv_fraction=0.7).llmapi)
    assert section("kv_cache_config", deployment=by_user)["free_gpu_memory_fraction"] == 0.7


def test_no_method_speculates_over_pipeline_stages() -> None:
    staged = with_settings(pp=2)
    assert "use target.tp 2" in refusal(staged)
    assert planned(LOWER, staged, method=None).arguments["pipeline_parallel_size"] == 2


def test_the_draft_runs_in_the_ranks_of_the_target() -> None:
    pair = with_target(served(), tp=4)
    assert pair.draft is not None
    assert planned(LOWER, pair).arguments["tensor_parallel_size"] == 4
    planned(LOWER, pair.evolve(draft=pair.draft.evolve(tp=4)))
    assert "draft.tp is 2" in refusal(pair.evolve(draft=pair.draft.evolve(tp=2)))


@pytest.mark.parametrize(
    ("version", "method", "off"),
    [
        (LOWER, None, False),
        (LOWER, "eagle3", False),
        (LOWER, "draft_target", True),
        (NEWEST, "draft_target", False),
        (LOWER, "ngram", True),
        (NEWEST, "ngram", True),
    ],
)
def test_the_overlap_scheduler_is_off_where_the_drafter_cannot_run_under_it(
    version: str, method: str | None, *, off: bool
) -> None:
    plan = planned(version, method=method)
    assert plan.arguments["disable_overlap_scheduler"] is off
    assert any("overlap scheduler is off" in note for note in plan.notes) is off


def test_the_overlap_scheduler_follows_the_setting_where_either_works() -> None:
    assert section("disable_overlap_scheduler", NEWEST, with_settings(overlap_scheduler=False))
    assert not section("disable_overlap_scheduler", NEWEST, with_settings(overlap_scheduler=True))
    assert section("disable_overlap_scheduler", LOWER, with_settings(overlap_scheduler=False))


def test_an_overlap_scheduler_that_cannot_run_is_refused_with_the_reason() -> None:
    overlapped = with_settings(overlap_scheduler=True)
    assert "drafts on the host" in refusal(overlapped, method="ngram")
    assert "verifies sampled requests greedily" in refusal(overlapped)


@pytest.mark.parametrize(
    ("method", "version", "least"),
    [("draft_target", LOWER, 20), ("pard", NEWEST, 32), ("auto", LOWER, 24), (None, LOWER, 4)],
)
def test_a_pass_has_room_for_every_draft_and_a_prompt(
    method: str | None, version: str, least: int
) -> None:
    exact = served()
    exact = exact.evolve(limits=exact.limits.evolve(max_num_tokens=least + 64))
    planned(version, exact, method=method)
    short = exact.evolve(limits=exact.limits.evolve(max_num_tokens=least + 63))
    assert f"at least {least + 64}" in refusal(short, version=version, method=method)


def test_prompts_come_in_chunks_where_a_whole_one_has_no_room_in_a_pass() -> None:
    limits = served().limits
    for tokens, chunked in ((532, False), (531, True)):
        pair = served(limits=limits.evolve(max_num_tokens=tokens))
        assert section("enable_chunked_prefill", deployment=pair) is chunked


def test_latent_attention_reuses_blocks_on_the_gpus_that_can() -> None:
    for sm, reused in ((90, True), (89, False), (None, True)):
        plan = planned(LOWER, latent(served()), sm=sm)
        cache = plan.arguments["kv_cache_config"]
        assert isinstance(cache, dict)
        assert cache["enable_block_reuse"] is reused
        assert any("KV blocks" in note for note in plan.notes) is (sm != 90)
    off = latent(with_settings(block_reuse=False))
    assert not any("not reused" in note for note in planned(LOWER, off, sm=89).notes)


def test_latent_attention_does_not_read_chunks_on_other_gpus() -> None:
    pair = latent(served())
    short = pair.evolve(limits=pair.limits.evolve(max_num_tokens=500))
    assert "come in chunks" in refusal(short, sm=89)
    planned(LOWER, short, sm=90)


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (1, [1]),
        (3, [1, 2, 3]),
        (20, [1, 2, 4, 8, 16, 20]),
        (300, [1, 2, 4, *range(8, 129, 8), 256, 300]),
    ],
)
def test_graphs_cover_the_batches_up_to_the_largest(largest: int, sizes: list[int]) -> None:
    pair = served()
    pair = pair.evolve(limits=pair.limits.evolve(max_batch_size=largest))
    assert graph_sizes(asked_of(LOWER, pair)) == sizes
    assert graph_sizes(asked_of(LOWER, pair, method=None)) == sizes


def test_an_engine_only_release_is_refused() -> None:
    assert "not served by its LLM API" in refusal(served(), version="0.19.0")


def test_a_method_that_loads_a_draft_needs_one() -> None:
    asked = asked_of(LOWER)
    with pytest.raises(ConfigError, match="needs a draft model"):
        question(served(), asked.release, "/models/target", Speculation("eagle3", 3))


@pytest.mark.parametrize(
    "profile", [p for p in profiles() if "llmapi" in p.paths], ids=lambda p: p.name
)
def test_every_release_and_method_gets_keys_of_its_own_profile_only(profile: Any) -> None:  # noqa: ANN401
    for method, entry in profile.llm_methods.items():
        plan = plan_llm(asked_of(profile.versions[0], method=method))
        config = plan.arguments["speculative_config"]
        assert isinstance(config, dict)
        base = profile.llm_sections["speculative_config"].fields
        assert config.keys() - {"decoding_type"} <= {*base, *entry.fields}
