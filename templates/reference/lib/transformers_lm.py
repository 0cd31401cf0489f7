"""Any decoder-only architecture through Hugging Face transformers: the reference computation.

Keys and values lie in buffers that grow by doubling, so that a step copies nothing but its
own tokens, and taking tokens back is a matter of counting. Sliding-window layers keep all
their tokens; the attention mask that transformers builds restricts what they see.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import torch
from causal_lm import CausalModel, ModelError, end_ids_of
from lean_llama import LeanLlama, supports
from transformers import AutoModelForCausalLM
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)
from transformers.utils import logging as transformers_logging

_FIRST_CAPACITY = 256


class GrowingLayer(CacheLayerMixin):  # type: ignore[misc] # transformers is not typed
    """Keys and values of one attention layer, ``[1, heads, capacity, head size]``."""

    is_croppable = True

    def __init__(self, *, sliding: bool) -> None:
        super().__init__()
        self.is_sliding = sliding
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the first buffers in the shape and dtype of the first states."""
        self.keys = _buffer_like(key_states, _FIRST_CAPACITY)
        self.values = _buffer_like(value_states, _FIRST_CAPACITY)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append states and return views of all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            self.keys = _grown(self.keys, end, self.length)
            self.values = _grown(self.values, end, self.length)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the mask's key count and the position of its first key."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Return how many tokens are held."""
        return self.length

    def get_max_length(self) -> int:
        """Return -1: there is no limit of its own."""
        return -1


@final
class TransformersModel:
    """A :class:`causal_lm.CausalModel` over ``AutoModelForCausalLM``."""

    def __init__(self, path: Path, dtype: torch.dtype, *, trust_remote_code: bool = False) -> None:
        self._model = _load(path, dtype, trust_remote_code=trust_remote_code)
        self._cache_keyword = _cache_keyword(self._model)
        config = self._model.config.get_text_config()
        self.vocab_size = int(config.vocab_size)
        self.context_length = int(getattr(config, "max_position_embeddings", 0) or 1 << 20)
        self.end_ids = end_ids_of(path, self._model.config.to_dict())
        self.supports_rewind = _can_rewind(self._model)

    def session(self) -> TransformersSession:
        """Return a new, empty session."""
        return TransformersSession(self, self._new_cache())

    def as_lean(self) -> CausalModel:
        """Return the same model with the lean forward pass, or itself where there is none."""
        return LeanLlama(self._model, self.end_ids) if supports(self._model) else self

    def forward(self, ids: Sequence[int], cache: Cache, keep: int) -> torch.Tensor:
        """Run the model over ``ids`` behind ``cache``; logits ``[rows, vocabulary]``."""
        with torch.inference_mode():
            output = self._model(
                input_ids=torch.tensor([ids]),
                use_cache=True,
                logits_to_keep=keep,
                **{self._cache_keyword: cache},
            )
            logits: torch.Tensor = output.logits[0].float()
        return logits

    def _new_cache(self) -> Cache:
        cache = DynamicCache(config=self._model.config)
        if not self.supports_rewind:
            return cache
        return Cache(
            layers=[
                GrowingLayer(sliding=isinstance(layer, DynamicSlidingWindowLayer))
                for layer in cache.layers
            ]
        )


@final
class TransformersSession:
    """A :class:`causal_lm.Session` of one transformers cache."""

    def __init__(self, model: TransformersModel, cache: Cache) -> None:
        self._model = model
        self._cache = cache
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return len(self.tokens)

    def advance(self, ids: Sequence[int], *, keep: int = 0) -> torch.Tensor:
        """Read ``ids``; see :meth:`causal_lm.Session.advance`."""
        logits = self._model.forward(ids, self._cache, keep)
        self.tokens.extend(ids)
        return logits

    def rewind(self, length: int) -> None:
        """Forget the tokens after ``length``; see :meth:`causal_lm.Session.rewind`."""
        if length == self.length:
            return
        if not self._model.supports_rewind:
            raise ModelError("this architecture keeps a recurrent state, which cannot be rewound")
        del self.tokens[length:]
        for layer in self._cache.layers:
            layer.length = min(layer.length, length)


def _load(path: Path, dtype: torch.dtype, *, trust_remote_code: bool) -> Any:  # noqa: ANN401
    """Load weights from local safetensors; transformers' own types are not declared."""
    if not any(path.glob("*.safetensors")):
        raise ModelError(f"{path} holds no .safetensors file; pickled weights are not loaded")
    transformers_logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise ModelError(f"transformers cannot load {path}: {error}") from error
    return model.eval().requires_grad_(False)


def _cache_keyword(model: Any) -> str:  # noqa: ANN401 - transformers is not typed
    """Return the name of forward's cache argument, which transformers 5.24 renamed."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def _can_rewind(model: Any) -> bool:  # noqa: ANN401 - transformers is not typed
    """Tell whether every layer's state is a plain list of keys and values."""
    if getattr(model, "_is_stateful", False):
        return False
    layers = DynamicCache(config=model.config).layers
    return bool(layers) and all(
        type(layer) in {DynamicLayer, DynamicSlidingWindowLayer} for layer in layers
    )


def _buffer_like(states: torch.Tensor, capacity: int) -> torch.Tensor:
    batch, heads, length, size = states.shape
    return states.new_empty(batch, heads, max(capacity, length), size)


def _grown(buffer: torch.Tensor, needed: int, used: int) -> torch.Tensor:
    bigger = _buffer_like(buffer, max(needed, 2 * buffer.shape[-2]))
    bigger[:, :, :used] = buffer[:, :, :used]
    return bigger
