"""Timed kernels: what lies between the points, and passes that are put together from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_tables import (
    ALL_REDUCE_S,
    HEAD_S,
    LAYERS_S,
    PER_CACHED_TOKEN_S,
    PER_PROMPT_TOKEN_S,
    PER_SEQUENCE_S,
    PRODUCTS_S,
    a_table,
)
from planning_models import model_named

from specdeploy.core.hardware import find_gpu
from specdeploy.core.served import ServedModel, serve_model
from specdeploy.core.speed import prefill_seconds, step_seconds
from specdeploy.core.speed.constants import DEFAULT
from specdeploy.core.speed.load import as_array
from specdeploy.core.speed.measured_table import Curve, Surface

H100 = find_gpu("h100-sxm")
CURVE = Curve(as_array([1, 4, 8]), as_array([10, 16, 40]))
SURFACE = Surface(as_array([1, 2]), as_array([10, 30]), as_array([[1, 3], [5, 7]]))


def timed_model() -> ServedModel:
    return replace(serve_model(model_named("Llama-3.1-8B")), measured=a_table())


@pytest.mark.parametrize(("size", "seconds"), [(1, 10), (2, 12), (4, 16), (6, 28), (8, 40)])
def test_a_curve_is_straight_between_its_points(size: float, seconds: float) -> None:
    assert CURVE.at(as_array(size)) == pytest.approx(seconds)


def test_a_curve_goes_on_as_its_last_piece() -> None:
    assert CURVE.at(as_array(10)) == pytest.approx(52)


def test_a_curve_is_level_below_its_first_point() -> None:
    assert CURVE.at(as_array(0)) == pytest.approx(10)


@pytest.mark.parametrize(
    ("row", "column", "seconds"),
    [(1, 10, 1), (2, 30, 7), (1.5, 10, 3), (1, 20, 2), (1.5, 20, 4), (3, 10, 9), (1, 50, 5)],
)
def test_a_surface_is_bilinear_and_goes_on_beyond_its_end(
    row: float, column: float, seconds: float
) -> None:
    assert SURFACE.at(as_array(row), as_array(column)) == pytest.approx(seconds)


def test_sizes_broadcast() -> None:
    seconds = SURFACE.at(as_array([[1], [2]]), as_array([10, 20, 30]))
    assert seconds.tolist() == [[1, 2, 3], [5, 6, 7]]


def test_a_decoding_pass_is_what_was_timed() -> None:
    kernels = a_table().decoding(as_array(16), as_array(1), as_array(1000))
    assert kernels.products == pytest.approx(PRODUCTS_S + 16e-6)
    assert kernels.lm_head == pytest.approx(HEAD_S + 16e-7)
    assert kernels.attention == pytest.approx(16 * (PER_SEQUENCE_S + 1000 * PER_CACHED_TOKEN_S))


def test_verified_positions_of_a_request_read_its_cache_once() -> None:
    kernels = a_table().decoding(as_array(16), as_array(4), as_array(8192))
    cached = 16 * 8192 * PER_CACHED_TOKEN_S
    assert kernels.attention == pytest.approx(cached + 64 * PER_SEQUENCE_S, rel=1e-3)


def test_verified_positions_of_a_request_are_multiplied_each() -> None:
    kernels = a_table().decoding(as_array(16), as_array(4), as_array(8192))
    assert kernels.products == pytest.approx(PRODUCTS_S + 64e-6)
    assert kernels.lm_head == pytest.approx(HEAD_S + 64e-7)


def test_reading_prompts_in_two_passes_launches_everything_twice() -> None:
    once = a_table().reading(as_array(2), as_array(100), as_array(1))
    twice = a_table().reading(as_array(2), as_array(100), as_array(2))
    assert once.layers == pytest.approx(LAYERS_S)
    assert twice.layers == pytest.approx(2 * LAYERS_S)
    assert twice.all_reduce == pytest.approx(2 * ALL_REDUCE_S)
    assert once.products == pytest.approx(PRODUCTS_S + 200e-6)
    assert twice.products == pytest.approx(2 * PRODUCTS_S + 200e-6)


def test_reading_prompts_computes_the_logits_of_their_last_tokens_only() -> None:
    kernels = a_table().reading(as_array(2), as_array(100), as_array(2))
    assert kernels.lm_head == pytest.approx(HEAD_S + 2e-7)


def test_attention_of_whole_prompts_is_independent_of_the_passes() -> None:
    once = a_table().reading(as_array(2), as_array(100), as_array(1))
    twice = a_table().reading(as_array(2), as_array(100), as_array(2))
    assert once.attention == twice.attention == pytest.approx(200 * PER_PROMPT_TOKEN_S)


def test_timed_kernels_stand_for_the_roofline_of_a_step() -> None:
    terms = step_seconds(timed_model(), H100, requests=16, tokens_per_request=1, context=1000)
    kernels = a_table().decoding(as_array(16), as_array(1), as_array(1000))
    assert terms.weights == kernels.products
    assert terms.compute == 0
    assert terms.attention == kernels.attention
    assert (terms.layers, terms.all_reduce) == (kernels.layers, kernels.all_reduce)
    assert terms.lm_head == kernels.lm_head


def test_the_host_takes_the_same_with_timed_kernels() -> None:
    plain = serve_model(model_named("Llama-3.1-8B"))
    ways = [
        step_seconds(model, H100, requests=16, tokens_per_request=1, context=1000)
        for model in (plain, timed_model())
    ]
    assert ways[0].scheduler == ways[1].scheduler
    assert ways[0].sampling == ways[1].sampling


def test_timed_products_of_a_long_prompt_count_as_multiplying() -> None:
    terms = prefill_seconds(timed_model(), H100, requests=1, tokens_per_request=4096)
    assert terms.weights == 0
    assert terms.compute == pytest.approx(PRODUCTS_S + 4096e-6)


def test_the_host_takes_the_same_with_timed_kernels_of_a_prompt() -> None:
    plain = serve_model(model_named("Llama-3.1-8B"))
    ways = [
        prefill_seconds(model, H100, requests=3, tokens_per_request=4096)
        for model in (plain, timed_model())
    ]
    assert ways[0].scheduler == ways[1].scheduler
    assert ways[1].scheduler == 2 * DEFAULT.step_s + 3 * DEFAULT.prompt_s
    assert ways[0].sampling == ways[1].sampling


def test_terms_of_a_step_keep_the_shape_of_the_question() -> None:
    terms = step_seconds(
        timed_model(), H100, requests=[[1], [8]], tokens_per_request=[1, 2, 3], context=100
    )
    assert np.shape(terms.total) == (2, 3)
