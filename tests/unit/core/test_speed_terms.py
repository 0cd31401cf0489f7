"""What each term of a pass is made of."""

from __future__ import annotations

import numpy as np
import pytest
from planning_models import model_named
from speed_pairs import H100, LOAD, a_pair, gpu_with, target, with_head

from specdeploy.core.hardware import find_gpu
from specdeploy.core.models import KvLayers, KvWidth
from specdeploy.core.served import ServedPair, serve_model
from specdeploy.core.speed import (
    DEFAULT,
    Load,
    draft_seconds,
    estimate_speed,
    mtp_head,
    prefill_seconds,
    speed_grid,
    step_seconds,
)
from specdeploy.core.speed.rates import products_per_s, rates_of
from specdeploy.core.speed.work import work_of

B200 = find_gpu("b200")


def step(**changes: object) -> dict[str, float]:
    settings = {"model": target(), "gpu": H100, "requests": 1, "tokens_per_request": 1}
    settings |= {"context": 1024, "constants": DEFAULT, **changes}
    model, gpu = settings.pop("model"), settings.pop("gpu")
    terms = step_seconds(model, gpu, **settings)  # type: ignore[arg-type]
    return {name: float(seconds) for name, seconds in terms.by_name().items()}


def test_one_request_is_bound_by_reading_the_weights() -> None:
    model = target()
    parts = model.spec.breakdown
    assert parts is not None
    body = parts.total - parts.embedding - parts.lm_head
    found = step()
    assert found["weights"] == pytest.approx(body / (3350e9 * DEFAULT.read_efficiency))
    assert found["compute"] == 0


def test_many_positions_are_bound_by_multiplying() -> None:
    found = step(requests=512, tokens_per_request=8)
    assert found["weights"] == 0
    assert found["compute"] > step()["weights"]


def test_the_lm_head_stays_in_16_bit() -> None:
    parts = target().spec.breakdown
    assert parts is not None
    read = 2 * parts.lm_head / (3350e9 * DEFAULT.read_efficiency)
    assert step()["lm_head"] == pytest.approx(read)


def test_a_tied_lm_head_is_read_and_the_embedding_is_not() -> None:
    tied = target(name="Llama-3.2-1B", precision="bf16")
    spec = tied.spec
    work = work_of(tied)
    assert work.head_bytes == 2 * spec.vocab_size * spec.hidden_size
    assert work.dense_bytes + work.head_bytes == pytest.approx(tied.weight_bytes)


def test_a_model_counted_from_its_tensors_reads_all_but_the_embedding() -> None:
    known = target(name="Llama-3.1-8B", precision="bf16")
    unknown = serve_model(known.spec.evolve(breakdown=None), precision="bf16")
    assert work_of(unknown).dense_bytes == pytest.approx(work_of(known).dense_bytes)
    assert work_of(unknown).head_bytes == work_of(known).head_bytes


def test_attention_reads_the_cache_of_every_request() -> None:
    model = target()
    found = step(requests=16, context=4096)
    read = 16 * 4096 * model.kv_bytes_per_token / (3350e9 * DEFAULT.cache_efficiency)
    assert found["attention"] == pytest.approx(read)


def test_verifying_reads_the_cache_once() -> None:
    assert step(tokens_per_request=5)["attention"] == step()["attention"]


def test_a_window_bounds_what_attention_reads() -> None:
    spec = model_named("Llama-3.1-8B")
    width = KvWidth(kv_heads=8, values_per_head=256, window=1024)
    windowed = serve_model(spec.evolve(kv_layers=[KvLayers(layers=32, width=width)]))
    assert step(model=windowed, context=1024) == step(model=windowed, context=8192)


def test_one_gpu_sums_with_nobody() -> None:
    assert step()["all_reduce"] == 0


def test_small_sums_take_one_shot_and_large_ones_two() -> None:
    two = 2 * 80
    small = step(model=target(tp=8))["all_reduce"] / two - DEFAULT.all_reduce_s
    one_way = 450e9 * DEFAULT.link_efficiency
    assert small == pytest.approx(7 * 2 * 8192 / one_way)
    large = step(model=target(tp=8), requests=4096)["all_reduce"] / two - DEFAULT.all_reduce_s
    moved = 4096 * 2 * 8192 * 2 * 7 / 8 / one_way
    assert large == pytest.approx(moved + DEFAULT.second_shot_s)


def test_gpus_without_nvlink_sum_over_pcie() -> None:
    slow = step(model=target(tp=2), gpu=gpu_with(nvlink_gb_s=0))["all_reduce"]
    assert slow > 2 * 80 * DEFAULT.pcie_s > step(model=target(tp=2))["all_reduce"]


def test_blackwell_and_four_bits_have_efficiencies_of_their_own() -> None:
    read = work_of(target(precision="nvfp4")).dense_bytes
    share = DEFAULT.blackwell_read_efficiency * DEFAULT.fp4_read_efficiency
    found = step(model=target(precision="nvfp4"), gpu=B200)
    assert found["weights"] == pytest.approx(read / (8000e9 * share))


@pytest.mark.parametrize(
    ("gpu", "unit", "peak", "share"),
    [
        ("b200", "fp4", 9000, "fp4_efficiency"),
        ("h100", "fp4", 1979, "fp8_efficiency"),
        ("a100", "fp8", 312, "half_efficiency"),
        ("a100", "int8", 624, "fp8_efficiency"),
        ("b300", "int8", 2250, "half_efficiency"),
        ("t4", "half", 65, "half_efficiency"),
    ],
)
def test_a_unit_that_a_gpu_lacks_multiplies_in_the_next_wider_one(
    gpu: str, unit: str, peak: float, share: str
) -> None:
    rates = rates_of(find_gpu(gpu)).rates
    found = products_per_s(rates, unit, DEFAULT)  # type: ignore[arg-type]
    assert found == pytest.approx(peak * 1e12 * DEFAULT.values()[share])


def test_a_card_in_no_table_has_the_rates_of_the_nearest() -> None:
    found = rates_of(find_gpu("custom:140000:9.0"))
    assert found.assumed_from == "h200-sxm"
    assert found.rates == find_gpu("h200").rates


def test_experts_are_read_as_far_as_tokens_touch_them() -> None:
    model = target(name="Qwen/Qwen3-30B-A3B")
    work = work_of(model)
    assert work.expert_share == pytest.approx(8 / 128)
    rate = 3350e9 * DEFAULT.expert_efficiency
    dense = work.dense_bytes / (3350e9 * DEFAULT.read_efficiency)
    for tokens in (1, 16):
        touched = 1 - (1 - 8 / 128) ** tokens
        read = dense + touched * work.expert_bytes / rate
        assert step(model=model, requests=tokens)["weights"] == pytest.approx(read)


def test_layers_with_experts_and_latent_attention_have_a_higher_floor() -> None:
    deepseek = serve_model(model_named("DeepSeek-R1"), precision="fp8", tp=8)
    each = DEFAULT.layer_s + DEFAULT.expert_layer_s + DEFAULT.latent_layer_s
    assert step(model=deepseek)["layers"] == pytest.approx(61 * each)
    assert step()["layers"] == pytest.approx(80 * DEFAULT.layer_s)


def test_a_long_prompt_is_read_in_passes() -> None:
    few = DEFAULT.moved({"max_num_tokens": 1024})
    once, often = (
        prefill_seconds(target(), H100, requests=1, tokens_per_request=4096, constants=each)
        for each in (DEFAULT, few)
    )
    assert float(often.layers) == pytest.approx(4 * float(once.layers))
    assert float(often.compute) == pytest.approx(float(once.compute))


def drafting(pair: ServedPair, length: int, *, requests: int = 1) -> float:
    many = {"requests": requests, "draft_length": length, "context": 1024}
    return float(draft_seconds(pair, H100, **many))  # type: ignore[arg-type]


def test_a_draft_model_runs_once_per_token() -> None:
    pair = a_pair()
    one, two, five = (drafting(pair, length) for length in (1, 2, 5))
    assert drafting(pair, 0) == 0
    assert five - one == pytest.approx(4 * (two - one))
    assert two - one > DEFAULT.draft_step_s


def test_a_one_layer_head_costs_less_than_a_draft_model() -> None:
    assert drafting(with_head("eagle"), 3) < drafting(a_pair(), 3)


def test_medusa_heads_run_once_and_have_a_tree_verified() -> None:
    medusa, eagle = with_head("medusa"), with_head("eagle")
    assert drafting(medusa, 5) == drafting(medusa, 1) == drafting(eagle, 1)
    tree, chain = (
        speed_grid(each, H100, Load(64, 1024, 512), draft_length=1, tokens_per_step=1.5).tpot_ms
        for each in (medusa, eagle)
    )
    assert tree > chain


def test_prompt_lookup_costs_the_host_by_request() -> None:
    lookup = ServedPair(target(), method="ngram")
    assert drafting(lookup, 0) == 0
    spent = drafting(lookup, 5, requests=11) - drafting(lookup, 5, requests=1)
    assert spent == pytest.approx(10 * DEFAULT.ngram_s)


def test_mtp_modules_are_one_layer_of_the_target() -> None:
    spec = model_named("DeepSeek-R1")
    head = mtp_head(spec)
    assert head.layers == 1
    assert head.parameters == head.breakdown.total == spec.mtp_parameters  # type: ignore[union-attr]
    served = work_of(serve_model(head, precision="bf16"))
    whole = work_of(serve_model(spec, precision="bf16"))
    assert served.expert_share == pytest.approx(whole.expert_share)
    assert served.head_bytes == whole.head_bytes


def test_mtp_modules_of_a_dense_model_are_dense() -> None:
    spec = model_named("Llama-3.1-8B").evolve(mtp_parameters=300_000_000)
    for known in (spec, spec.evolve(breakdown=None)):
        assert work_of(serve_model(mtp_head(known))).expert_bytes == 0


def test_calls_between_models_are_paid_only_when_speculating() -> None:
    both = a_pair(through_bls=True)
    for length, trips in ((0, 0.0), (3, DEFAULT.round_trip_s)):
        grid = speed_grid(both, H100, Load(1, 1024, 512), draft_length=length, tokens_per_step=1)
        alone = speed_grid(
            a_pair(), H100, Load(1, 1024, 512), draft_length=length, tokens_per_step=1
        )
        assert float(grid.tpot_ms - alone.tpot_ms) == pytest.approx(1e3 * trips)


def test_a_draft_on_its_own_gpus_reads_prompts_meanwhile() -> None:
    apart = ServedPair(target(), a_pair().draft, "draft_target", draft_apart=True)
    together, separate = (
        speed_grid(pair, H100, LOAD, draft_length=3, tokens_per_step=2)
        for pair in (a_pair(), apart)
    )
    assert separate.ttft_ms < together.ttft_ms
    assert separate.baseline_ttft_ms == together.baseline_ttft_ms


def test_the_host_bounds_many_fast_requests() -> None:
    fast = target(tp=8, name="Llama-3.1-8B")
    slow_host = DEFAULT.moved({"request_s": 1e-3})
    load = Load(np.array([1, 256]), 1024, 512)
    quick, late = (
        speed_grid(ServedPair(fast), H100, load, draft_length=0, tokens_per_step=1, constants=each)
        for each in (DEFAULT.moved({"request_s": 0.0}), slow_host)
    )
    assert late.tpot_ms[0] == quick.tpot_ms[0]
    whole = late.ttft_ms[1] + 511 * late.tpot_ms[1]
    host = 256 * (1e3 * slow_host.prompt_s + 511)
    assert whole == pytest.approx(host + 1e3 * DEFAULT.first_token_s)


def test_requests_of_equal_lengths_queue_together() -> None:
    uneven, equal = (
        speed_grid(
            ServedPair(target()),
            H100,
            Load(np.array([1, 2, 16, 64]), 8192, 512, equal_lengths=each),
            draft_length=0,
            tokens_per_step=1,
        )
        for each in (False, True)
    )
    more = equal.ttft_ms - uneven.ttft_ms
    assert more[0] == 0
    assert more[1] > 100
    assert more[2] == pytest.approx(DEFAULT.queue_base * more[1])
    assert more[3] == pytest.approx(more[2])
    # What one waits for is read anyway, so that a round takes as long.
    assert equal.tpot_ms[2] == pytest.approx(uneven.tpot_ms[2] - more[2] / 511)


def test_a_server_that_collects_prompts_lets_the_first_wait_longest() -> None:
    alone, two, many = (_steps_waited(batch) for batch in (1, 2, 128))
    assert alone == 0
    # In a round of 2000 steps 0.02 requests come while one waits.
    assert two == pytest.approx(20 * 1.01 / 1.02)
    assert 10 < many < two


def _steps_waited(batch: int) -> float:
    at_once, collecting = (
        estimate_speed(
            ServedPair(target()),
            H100,
            Load(batch, 1024, 2001, batch_wait_iters=wait),
            draft_length=0,
            tokens_per_step=1,
        ).baseline
        for wait in (0, 20)
    )
    assert collecting.tpot_ms == at_once.tpot_ms
    return (collecting.ttft_ms - at_once.ttft_ms) / at_once.step_ms
