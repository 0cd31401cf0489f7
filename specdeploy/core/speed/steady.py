"""A closed loop of clients round one model: from the seconds of a pass to TTFT and TPOT."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from specdeploy.core.speed.drafting import drafting, verified_positions
from specdeploy.core.speed.load import Array, Load, Terms, as_array
from specdeploy.core.speed.serving import Serving
from specdeploy.core.speed.steps import decode_terms, prefill_terms


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

    ``R = min(batch, resident)`` requests are in the engine. In one round it makes ``S =
    (output - 1) / tokens_per_step`` steps and reads ``R`` prompts, of which one takes ``A`` alone
    and holds up the others for ``P``: ``E = S step(R) + A + (R - 1) P``. A prompt waits for ``w =
    queue_slope (R - 1)`` others, and where lengths are equal for up to ``queue_base`` more: its
    first token takes ``A + w P`` of the round, and the path through client and server. The later
    tokens take the rest.

    The host, one process, needs ``H = R (prompt_s + S request_s)`` a round. Where that is more
    than ``E``, a share ``backlog`` of the difference shows in the first token, the rest in the
    others. Requests beyond ``R`` wait for ``(batch - R) / R`` rounds.
    """
    constants = serving.constants
    batch = as_array(load.batch)
    later = np.maximum(as_array(load.output_len) - 1.0, 1.0)
    inside = batch if load.resident is None else np.minimum(batch, as_array(load.resident))
    step = step_terms(serving, load, inside=inside, draft_length=draft_length)
    steps = later / tokens_per_step
    alone, held_up = _prefill(serving, load, inside=inside, speculating=as_array(draft_length > 0))
    others = inside - 1.0
    together = as_array(load.equal_lengths) * np.minimum(others, constants.queue_base)
    waited = held_up * (together + others * constants.queue_slope)
    decoding = steps * step.total + np.maximum(others * held_up - waited, 0.0)
    engine = decoding + alone + waited
    late = np.maximum(inside * (constants.prompt_s + steps * constants.request_s) - engine, 0.0)
    decoding = decoding + (1.0 - constants.backlog) * late
    first = constants.first_token_s + alone + waited + constants.backlog * late
    first = first + _waits_for_company(load, inside, steps) * step.total
    queue = (batch - inside) / inside * (engine + late)
    return Steady(ttft=first + queue, tpot=decoding / later, step=step)


def step_terms(serving: Serving, load: Load, *, inside: Array, draft_length: Array) -> Terms:
    """Return the terms of one step of ``inside`` requests at their mean context."""
    context = as_array(load.input_len) + as_array(load.output_len) / 2.0
    pair, constants = serving.pair, serving.constants
    positions = verified_positions(pair, draft_length, constants)
    terms = decode_terms(serving.target, inside, positions, context)
    trips = (draft_length > 0) * (constants.round_trip_s if pair.through_bls else 0.0)
    draft = drafting(serving, inside, draft_length, context)
    return replace(terms, draft=draft, round_trip=as_array(trips))


def _waits_for_company(load: Load, inside: Array, steps: Array) -> Array:
    """Return the mean steps for which a server that collects prompts lets one wait.

    The first one waits for ``batch_wait_iters``; those that come meanwhile, ``inside`` in
    ``steps``, for half of that. A request alone waits for no step.
    """
    wait = as_array(load.batch_wait_iters)
    meanwhile = inside * wait / np.maximum(steps, 1.0)
    mean = wait * (1.0 + meanwhile / 2.0) / (1.0 + meanwhile)
    return np.where(inside > 1.0, mean, 0.0)


def _prefill(
    serving: Serving, load: Load, *, inside: Array, speculating: Array
) -> tuple[Array, Array]:
    """Return seconds of one prompt alone, and those for which it holds up the others.

    Prompts share a pass up to ``max_num_tokens``, and with it the reading of the weights. A
    draft on the same GPUs reads the prompt too; one on GPUs of its own does so meanwhile.
    """
    constants, prompt = serving.constants, as_array(load.input_len)
    together = np.maximum(np.minimum(inside, constants.max_num_tokens // prompt), 1.0)
    one = as_array(1.0)
    alone = prefill_terms(serving.target, one, prompt).total
    shared = prefill_terms(serving.target, together, prompt).total / together
    if serving.draft is not None and not serving.pair.draft_apart:
        alone = alone + speculating * prefill_terms(serving.draft, one, prompt).total
        more = prefill_terms(serving.draft, together, prompt).total / together
        shared = shared + speculating * more
    return alone, constants.interference * shared
