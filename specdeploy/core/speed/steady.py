"""A closed loop of clients round one model: from the seconds of a pass to TTFT and TPOT."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.served import ServedPair
from specdeploy.core.speed.constants import Constants
from specdeploy.core.speed.drafting import draft_seconds, verified_positions
from specdeploy.core.speed.load import Array, Load, Terms, as_array
from specdeploy.core.speed.steps import Machine, decode_terms, machine_of, prefill_terms


@dataclass(frozen=True, slots=True)
class Serving:
    """A pair on its GPUs."""

    pair: ServedPair
    gpu: GpuSpec
    constants: Constants

    @property
    def target(self) -> Machine:
        """The target on its GPUs."""
        return machine_of(self.pair.target, self.gpu, self.constants)


@dataclass(frozen=True, slots=True)
class Steady:
    """Seconds at steady concurrency, and the terms of one step."""

    ttft: Array
    tpot: Array
    step: Terms


def serve_steadily(
    serving: Serving, load: Load, *, draft_length: Array, tokens_per_step: Array
) -> Steady:
    """Return TTFT and TPOT of ``load``.

    ``R = min(batch, resident)`` requests are in the engine. In one round it reads ``R`` prompts
    and makes ``S = (output - 1) / tokens_per_step`` steps: ``E = S step(R) + R P`` with ``P`` the
    time for which one prompt holds up the others. A first token takes its own prefill and a wait
    of ``(queue_base + queue_slope (R - 1)) P``; what is left of the round are the later tokens.
    The host, one process, needs ``H = batch (prompt_s + S request_s)`` a round; where that is
    more than ``E``, a share ``backlog`` of the difference shows in the first token and the rest
    in the others. Requests beyond ``R`` wait for ``(batch - R) / R`` rounds.
    """
    constants = serving.constants
    batch, output = as_array(load.batch), as_array(load.output_len)
    inside = batch if load.resident is None else np.minimum(batch, as_array(load.resident))
    step = step_terms(serving, load, inside=inside, draft_length=draft_length)
    steps = (output - 1.0) / tokens_per_step
    alone, held_up = _prefill(serving, load, inside=inside, speculating=as_array(draft_length > 0))
    engine = steps * step.total + inside * held_up
    wait = held_up * (constants.queue_base + constants.queue_slope * (inside - 1.0))
    first = np.minimum(constants.first_token_s + alone + wait, engine)
    late = np.maximum(inside * (constants.prompt_s + steps * constants.request_s) - engine, 0.0)
    round_s = engine + late
    queue = (batch - inside) / inside * round_s
    ttft = first + constants.backlog * late
    return Steady(ttft=ttft + queue, tpot=(round_s - ttft) / (output - 1.0), step=step)


def step_terms(serving: Serving, load: Load, *, inside: Array, draft_length: Array) -> Terms:
    """Return the terms of one step of ``inside`` requests at their mean context."""
    context = as_array(load.input_len) + as_array(load.output_len) / 2.0
    pair, constants = serving.pair, serving.constants
    positions = verified_positions(pair, draft_length, constants)
    terms = decode_terms(serving.target, inside, positions, context)
    draft = draft_seconds(
        pair,
        serving.gpu,
        requests=inside,
        draft_length=draft_length,
        context=context,
        constants=constants,
    )
    trips = (draft_length > 0) * (constants.round_trip_s if pair.through_bls else 0.0)
    return replace(terms, draft=draft, round_trip=as_array(trips))


def _prefill(
    serving: Serving, load: Load, *, inside: Array, speculating: Array
) -> tuple[Array, Array]:
    """Return seconds of one prompt alone, and those for which it holds up the others.

    Prompts share a pass up to ``max_num_tokens``, and with it the reading of the weights.
    """
    constants, prompt = serving.constants, as_array(load.input_len)
    together = np.maximum(np.minimum(inside, constants.max_num_tokens // prompt), 1.0)
    alone = prefill_terms(serving.target, as_array(1.0), prompt).total
    shared = prefill_terms(serving.target, together, prompt).total / together
    draft = serving.pair.draft
    if draft is not None:
        machine = machine_of(draft, serving.gpu, constants)
        alone = alone + speculating * prefill_terms(machine, as_array(1.0), prompt).total
        more = prefill_terms(machine, together, prompt).total / together
        shared = shared + speculating * more
    return alone, constants.interference * shared
