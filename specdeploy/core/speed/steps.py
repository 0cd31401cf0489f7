"""Seconds of one forward pass of one model: decoding or verifying, and prefill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from specdeploy.core.hardware import GpuRates, GpuSpec
from specdeploy.core.served import ServedModel
from specdeploy.core.speed.constants import DEFAULT, Constants
from specdeploy.core.speed.load import Array, Terms, as_array
from specdeploy.core.speed.rates import products_per_s, rates_of
from specdeploy.core.speed.work import Work, work_of

ALL_REDUCES_PER_LAYER: Final = 2
BLACKWELL: Final = 100
_HALF_BYTES: Final = 2
_ZERO: Final = as_array(0.0)


@dataclass(frozen=True, slots=True)
class Machine:
    """One model on its GPUs, with everything that does not depend on the load."""

    model: ServedModel
    work: Work
    rates: GpuRates
    sm: int
    constants: Constants

    @property
    def bytes_per_s(self) -> float:
        """Peak bandwidth of memory."""
        return self.rates.bandwidth_gb_s * 1e9

    @property
    def read_bytes_per_s(self) -> float:
        """What reading weights reaches."""
        constants = self.constants
        share = (
            constants.read_efficiency
            if self.sm < BLACKWELL
            else constants.blackwell_read_efficiency
        )
        if self.model.precision.unit == "fp4":
            share = share * constants.fp4_read_efficiency
        return self.bytes_per_s * share

    @property
    def products_per_s(self) -> float:
        """What large matrix products reach."""
        return products_per_s(self.rates, self.model.precision.unit, self.constants)

    @property
    def half_products_per_s(self) -> float:
        """What large 16-bit products (attention, LM head) reach."""
        return products_per_s(self.rates, "half", self.constants)


def machine_of(model: ServedModel, gpu: GpuSpec, constants: Constants) -> Machine:
    """Return the model on ``gpu``."""
    return Machine(model, work_of(model), rates_of(gpu).rates, gpu.sm, constants)


def step_seconds(
    model: ServedModel,
    gpu: GpuSpec,
    *,
    requests: ArrayLike,
    tokens_per_request: ArrayLike,
    context: ArrayLike,
    constants: Constants = DEFAULT,
) -> Terms:
    """Return the terms of one decoding or verifying pass.

    ``max(bytes / bandwidth, FLOPs / rate)`` for the matrix products and for attention, plus a
    floor per layer, two all-reduces per layer, the LM head, sampling, and the host's work as
    far as it is not hidden behind the GPU's.

    Args:
        model: The model as it is served.
        gpu: What each of its GPUs is.
        requests: Requests in the pass.
        tokens_per_request: Positions of each; draft length + 1 when verifying.
        context: Tokens that each position attends to.
        constants: Of the model.
    """
    machine = machine_of(model, gpu, constants)
    each = as_array(requests), as_array(tokens_per_request), as_array(context)
    return decode_terms(machine, *each)


def decode_terms(machine: Machine, requests: Array, per_request: Array, context: Array) -> Terms:
    """Return the terms of one pass of ``requests`` times ``per_request`` positions."""
    constants = machine.constants
    tokens = requests * per_request
    reading, multiplying = products(machine, tokens)
    if machine.model.measured is not None:
        timed = machine.model.measured.decoding(requests, per_request, context)
        host = constants.sampling_s * tokens, as_array(constants.step_s)
        return timed.terms(bound_by_memory=reading >= multiplying, host=host)
    head = lm_head(machine, tokens)
    attention = np.maximum(
        requests * cache_bytes(machine, context) / _cache_rate(machine),
        tokens * context * machine.work.attention_flops / machine.half_products_per_s,
    )
    layers, reduce = layer_floor(machine), all_reduce(machine, tokens)
    sampling = constants.sampling_s * tokens
    return Terms(
        weights=np.where(reading >= multiplying, reading, 0.0),
        compute=np.where(reading >= multiplying, 0.0, multiplying),
        attention=attention,
        layers=layers,
        all_reduce=reduce,
        lm_head=head,
        sampling=sampling,
        scheduler=as_array(constants.step_s),
        draft=_ZERO,
        round_trip=_ZERO,
    )


def prefill_seconds(
    model: ServedModel,
    gpu: GpuSpec,
    *,
    requests: ArrayLike,
    tokens_per_request: ArrayLike,
    constants: Constants = DEFAULT,
) -> Terms:
    """Return the terms of reading ``requests`` prompts, in passes of ``max_num_tokens``.

    Every pass reads the weights; attention is causal, so a token sees half of its prompt.
    """
    machine = machine_of(model, gpu, constants)
    return prefill_terms(machine, as_array(requests), as_array(tokens_per_request))


def prefill_terms(machine: Machine, requests: Array, per_request: Array) -> Terms:
    """Return the terms of reading ``requests`` prompts of ``per_request`` tokens."""
    constants = machine.constants
    tokens = requests * per_request
    passes = np.ceil(tokens / constants.max_num_tokens)
    reading, multiplying = products(machine, tokens / passes)
    if machine.model.measured is not None:
        timed = machine.model.measured.reading(requests, per_request, passes)
        scheduler = constants.step_s * passes + constants.prompt_s * requests
        host = constants.sampling_s * requests, scheduler
        return timed.terms(bound_by_memory=reading >= multiplying, host=host)
    reading, multiplying = reading * passes, multiplying * passes
    attention = tokens * per_request * 0.5 * machine.work.attention_flops
    return Terms(
        weights=np.where(reading >= multiplying, reading, 0.0),
        compute=np.where(reading >= multiplying, 0.0, multiplying),
        attention=attention / machine.half_products_per_s,
        layers=layer_floor(machine) * passes,
        all_reduce=all_reduce(machine, tokens / passes) * passes,
        lm_head=lm_head(machine, requests),
        sampling=constants.sampling_s * requests,
        scheduler=constants.step_s * passes + constants.prompt_s * requests,
        draft=_ZERO,
        round_trip=_ZERO,
    )


def products(machine: Machine, tokens: Array) -> tuple[Array, Array]:
    """Return seconds to read the weights and to multiply with them.

    Of the routed experts ``1 - (1 - f)^n`` are touched by ``n`` tokens that use a share ``f``.
    """
    work, constants = machine.work, machine.constants
    reading = as_array(work.dense_bytes / machine.read_bytes_per_s)
    if work.expert_bytes:
        touched = 1.0 - (1.0 - work.expert_share) ** tokens
        rate = machine.bytes_per_s * constants.expert_efficiency
        reading = reading + touched * (work.expert_bytes / rate)
    moved = machine.model.spec.layers * machine.model.spec.hidden_size * _HALF_BYTES
    elementwise = constants.activation_passes * moved / machine.bytes_per_s
    flops = work.dense_flops + work.expert_flops / constants.expert_products
    return reading, tokens * (flops / machine.products_per_s + elementwise)


def lm_head(machine: Machine, rows: Array) -> Array:
    """Return seconds of the product with the vocabulary for ``rows`` positions."""
    work = machine.work
    reading = work.head_bytes / (machine.bytes_per_s * machine.constants.read_efficiency)
    return np.maximum(reading, rows * (work.head_flops / machine.half_products_per_s))


def layer_floor(machine: Machine) -> Array:
    """Return seconds that launching the layers takes at the least."""
    constants, work = machine.constants, machine.work
    experts = constants.expert_layer_s if work.expert_bytes else 0.0
    latent = constants.latent_layer_s if work.latent else 0.0
    return as_array(machine.model.spec.layers * (constants.layer_s + experts + latent))


def all_reduce(machine: Machine, tokens: Array) -> Array:
    """Return seconds of two all-reduces per layer of the 16-bit activations.

    In one shot every GPU reads all others', ``tp - 1`` times the activations; in two it moves
    ``2 (tp - 1) / tp`` times and pays ``second_shot_s`` once more. The faster one is used.
    """
    constants, spec, tp = machine.constants, machine.model.spec, machine.model.tp
    if tp == 1:
        return _ZERO
    nvlink = machine.rates.nvlink_gb_s
    one_way = (nvlink or constants.pcie_gb_s) * 1e9 / 2 * constants.link_efficiency
    latency = constants.all_reduce_s if nvlink else constants.pcie_s
    shot = tokens * (_HALF_BYTES * spec.hidden_size * (tp - 1) / one_way)
    moving = np.minimum(shot, constants.second_shot_s + shot * (2.0 / tp))
    return ALL_REDUCES_PER_LAYER * spec.layers * (latency + moving)


def cache_bytes(machine: Machine, context: Array) -> Array:
    """Return bytes of KV cache and state that one request's pass reads."""
    total = as_array(machine.work.state_bytes)
    for group in machine.work.cache:
        seen = context if group.window is None else np.minimum(context, group.window)
        total = total + seen * group.bytes_per_token
    return total


def _cache_rate(machine: Machine) -> float:
    return machine.bytes_per_s * machine.constants.cache_efficiency
