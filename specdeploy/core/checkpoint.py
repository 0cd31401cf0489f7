"""The raw contents of a checkpoint directory: parsed, not yet understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdeploy.core.tensors import TensorInfo


@dataclass(frozen=True)
class TokenizerSizes:
    """What tokenizer files say about the vocabulary."""

    base: int
    added: int
    highest_id: int


@dataclass(frozen=True)
class CheckpointContents:
    """One checkpoint's files as plain data.

    Attributes:
        config: config.json.
        generation: generation_config.json, or None.
        quantization: hf_quant_config.json, or None.
        tensors: From safetensors headers; None when there are no such files.
        pickle_bytes: Size of weight files that are never opened; None when there are none.
        tokenizer: None when no tokenizer file tells.
    """

    name: str
    config: Mapping[str, object]
    generation: Mapping[str, object] | None = None
    quantization: Mapping[str, object] | None = None
    tensors: list[TensorInfo] | None = None
    pickle_bytes: int | None = None
    tokenizer: TokenizerSizes | None = None
