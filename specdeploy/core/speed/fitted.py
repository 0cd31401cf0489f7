"""Written by scripts/fit_constants; not by hand."""

from __future__ import annotations

from typing import Final

FITTED: Final[dict[str, float]] = {
    "read_efficiency": 0.8344,
    "blackwell_read_efficiency": 0.7097,
    "fp4_read_efficiency": 0.8542,
    "cache_efficiency": 0.757,
    "half_efficiency": 0.6747,
    "fp8_efficiency": 0.457,
    "fp4_efficiency": 0.3958,
    "activation_passes": 8.418,
    "layer_s": 3.218e-05,
    "all_reduce_s": 9.311e-06,
    "second_shot_s": 7.159e-06,
    "link_efficiency": 0.5526,
    "step_s": 0.0002807,
    "request_s": 6.221e-05,
    "prompt_s": 0.005938,
    "first_token_s": 0.03997,
    "interference": 0.8701,
    "queue_base": 0.4338,
    "queue_slope": 0.07219,
    "backlog": 0.4986,
    "expert_efficiency": 0.7439,
    "expert_products": 0.5832,
    "expert_layer_s": 1.151e-05,
    "latent_layer_s": 3.914e-05,
    "draft_step_s": 0.0002129,
    "speculation_s": 0.0,
}
# What a prediction is multiplied with: LEVEL of unseen measurements lie between.
LEVEL: Final = 0.8
SPREAD: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "dense": {"speedup": (0.9407, 1.063), "ttft": (0.7291, 3.065), "tpot": (0.8763, 1.211)},
    "experts": {"speedup": (0.9407, 1.063), "ttft": (0.7055, 3.401), "tpot": (0.754, 3.176)},
}
