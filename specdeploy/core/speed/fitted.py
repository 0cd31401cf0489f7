"""Written by scripts/fit_constants; not by hand."""

from __future__ import annotations

from typing import Final

FITTED: Final[dict[str, float]] = {
    "read_efficiency": 0.8159,
    "blackwell_read_efficiency": 0.7173,
    "fp4_read_efficiency": 0.8594,
    "cache_efficiency": 0.7659,
    "half_efficiency": 0.69,
    "fp8_efficiency": 0.4747,
    "fp4_efficiency": 0.3543,
    "activation_passes": 8.702,
    "layer_s": 3.235e-05,
    "all_reduce_s": 9.255e-06,
    "second_shot_s": 6.956e-06,
    "link_efficiency": 0.5274,
    "step_s": 0.0002968,
    "request_s": 6.222e-05,
    "prompt_s": 0.005844,
    "first_token_s": 0.03249,
    "interference": 0.8911,
    "queue_base": 1.911,
    "queue_slope": 0.06027,
    "backlog": 0.4991,
    "expert_efficiency": 0.752,
    "expert_products": 0.4651,
    "expert_layer_s": 1.106e-05,
    "latent_layer_s": 3.849e-05,
    "draft_step_s": 0.0002143,
    "speculation_s": 0.0,
}
# What a prediction is multiplied with: LEVEL of unseen measurements lie between.
LEVEL: Final = 0.8
SPREAD: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "dense": {"speedup": (0.9402, 1.064), "ttft": (0.8233, 2.731), "tpot": (0.8613, 1.202)},
    "experts": {"speedup": (0.9402, 1.064), "ttft": (0.8354, 3.832), "tpot": (0.7547, 3.174)},
}
