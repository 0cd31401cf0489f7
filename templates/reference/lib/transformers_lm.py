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
from causal_lm import CausalModel, ModelError, common_prefix, end_ids_of
from lean_llama import LeanLlama, supports
from row_attention import use_row_attention
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

# Enough of a prefix to attend to, and tokens from all over the vocabulary.
_PROBE_PROMPT = 8
_PROBE_STRIDE = 97


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
    """A :class:`causal_lm.CausalModel` over ``AutoModelForCausalLM``.

    Attributes:
        plain_passes: Whether logits are, bit for bit, those of plain decoding; see
            :meth:`read_in_plain_passes`.
    """

    def __init__(self, path: Path, dtype: torch.dtype, *, trust_remote_code: bool = False) -> None:
        self._model = _load(path, dtype, trust_remote_code=trust_remote_code)
        self._cache_keyword = _cache_keyword(self._model)
        config = self._model.config.get_text_config()
        self.vocab_size = int(config.vocab_size)
        self.context_length = int(getattr(config, "max_position_embeddings", 0) or 1 << 20)
        self.end_ids = end_ids_of(path, self._model.config.to_dict())
        self.supports_rewind = _can_rewind(self._model)
        self.plain_passes = False
        self._alike = {1: True}

    def session(self) -> TransformersSession:
        """Return a new, empty session."""
        return TransformersSession(self, self._new_cache())

    def as_lean(self) -> CausalModel:
        """Return the same model with the lean forward pass, or itself where there is none."""
        return LeanLlama(self._model, self.end_ids) if supports(self._model) else self

    def read_in_plain_passes(self) -> None:
        """Compute from now on what plain decoding computes, to the last bit.

        That is: the prompt in one pass, and then each token as if it were alone. In 16 bit
        passes of other sizes round otherwise, and near ties fall the other way.
        """
        if self.supports_rewind:
            use_row_attention(self._model)
            self.plain_passes = True

    def rows_alike(self, count: int) -> bool:
        """Tell whether ``count`` tokens in one pass get the bits that each gets alone.

        That depends on the processor's matrix products, so it is tried, once per count.
        """
        if count not in self._alike:
            self._alike[count] = self._try_rows(count)
        return self._alike[count]

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

    def _try_rows(self, count: int) -> bool:
        ids = [(_PROBE_STRIDE * i + 1) % self.vocab_size for i in range(_PROBE_PROMPT + count)]
        prompt, rest = ids[:_PROBE_PROMPT], ids[_PROBE_PROMPT:]
        together, apart = self._new_cache(), self._new_cache()
        for cache in (together, apart):
            self.forward(prompt, cache, 1)
        alone = [self.forward([i], apart, 1) for i in rest]
        return torch.equal(self.forward(rest, together, count), torch.cat(alone))

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
        self._prompt_length = 0
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return len(self.tokens)

    def shared(self, ids: Sequence[int]) -> int:
        """Count the tokens that need no reading; see :meth:`causal_lm.Session.shared`.

        In plain passes these are all but the last, or none: a prompt is read in one.
        """
        count = common_prefix(self.tokens, ids, len(ids) - 1)
        if self._model.plain_passes and not self._prompt_length <= count == len(ids) - 1:
            return 0
        return count

    def advance(self, ids: Sequence[int], *, keep: int = 0) -> torch.Tensor:
        """Read ``ids``; see :meth:`causal_lm.Session.advance`."""
        if keep <= 1 or not self._model.plain_passes:
            return self._read(ids, keep)
        # The first row that is asked for belongs to the last token of a prompt, if one is here.
        split = len(ids) - keep + (not self.tokens or keep < len(ids))
        prompt, drafted = ids[:split], ids[split:]
        logits = [self._read(prompt, 1)] if prompt else []
        if self._model.rows_alike(len(drafted)):
            logits.append(self._read(drafted, len(drafted)))
        else:
            logits += [self._read([token], 1) for token in drafted]
        return torch.cat(logits)

    def _read(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        if not self.tokens:
            self._prompt_length = len(ids)
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
