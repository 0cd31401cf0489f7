"""Decoder-only language models on PyTorch CPU, one token list at a time.

A :class:`CausalModel` makes :class:`Session` objects. A session holds the keys and values of
the tokens it has read, so that reading goes on where it stopped and can be taken back::

    model = load_model("/models/target", dtype="bf16")
    session = model.session()
    logits = session.advance([1, 20, 300])  # [3, vocabulary], float32
    session.rewind(2)                       # forget the last token

Two implementations: Hugging Face transformers (*the* reference, any decoder-only
architecture), and a lean forward pass for plain Llama models (:mod:`lean_llama`), which
computes the same with less Python per step and is meant for drafts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

import torch

Dtype = Literal["fp32", "bf16", "fp16"]

DTYPES: Final[dict[str, torch.dtype]] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


class ModelError(Exception):
    """A checkpoint cannot be served, or not this way; the message says why and what to do."""


class Session(Protocol):
    """Keys and values of one token list. Not for two threads at a time."""

    @property
    def tokens(self) -> list[int]:
        """The tokens read so far; do not change it."""

    @property
    def length(self) -> int:
        """How many tokens were read."""

    def advance(self, ids: Sequence[int], *, keep: int = 0) -> torch.Tensor:
        """Read ``ids`` and return logits, float32, ``[rows, vocabulary]``.

        Row ``i`` scores the token after ``ids[i]``. ``keep`` asks for the last rows only
        (0 for all), which saves work on a long prompt.
        """

    def shared(self, ids: Sequence[int]) -> int:
        """Count the leading tokens of ``ids`` that need no reading: at most all but the last."""

    def rewind(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens (``0 <= length <= self.length``).

        Raises:
            ModelError: the architecture cannot take tokens back (see ``supports_rewind``).
        """


class CausalModel(Protocol):
    """A loaded model; its weights are shared by its sessions and by threads."""

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""

    @property
    def context_length(self) -> int:
        """Tokens that one session may hold (``max_position_embeddings``)."""

    @property
    def end_ids(self) -> frozenset[int]:
        """End ids of generation_config.json, else of config.json."""

    @property
    def supports_rewind(self) -> bool:
        """False for recurrent and hybrid models: their state cannot be taken back."""

    def session(self) -> Session:
        """Return a new, empty session."""


def load_model(
    directory: str | Path, *, dtype: Dtype, lean: bool = False, trust_remote_code: bool = False
) -> CausalModel:
    """Load a checkpoint directory; nothing is downloaded and no pickle is read.

    Args:
        directory: A Hugging Face directory with config.json and safetensors.
        dtype: Precision of weights and computation.
        lean: Use the lean forward pass where the architecture allows it. It suits drafts: in
            16 bit it may round otherwise than plain decoding, which others do not.
        trust_remote_code: Run the checkpoint's own Python.

    Raises:
        ModelError: the directory cannot be loaded this way.
    """
    path = file_path(directory)
    if dtype not in DTYPES:
        raise ModelError(f"precision {dtype!r} is not one of {', '.join(DTYPES)}")
    from transformers_lm import TransformersModel  # noqa: PLC0415 - slow, and it imports this

    model = TransformersModel(path, DTYPES[dtype], trust_remote_code=trust_remote_code)
    if lean:
        return model.as_lean()
    if dtype != "fp32":
        model.read_in_plain_passes()
    return model


def file_path(name: str | Path) -> Path:
    """Return the path that a configuration names, for use with the file system.

    Triton's Python stub ignores the locale and takes file names for ASCII, so that other
    characters must be handed to it as the bytes they are.
    """
    return Path(os.fsdecode(str(name).encode("utf-8", "surrogateescape")))


def common_prefix(left: Sequence[int], right: Sequence[int], limit: int) -> int:
    """Count the leading tokens that two lists share, at most ``limit``."""
    limit = max(min(limit, len(left), len(right)), 0)
    return next((i for i in range(limit) if left[i] != right[i]), limit)


def end_ids_of(path: Path, config: Mapping[str, object]) -> frozenset[int]:
    """Return the end ids of a checkpoint: generation_config.json first, then config.json."""
    generation = path / "generation_config.json"
    text = generation.read_text(encoding="utf-8-sig") if generation.is_file() else "{}"
    value = json.loads(text).get("eos_token_id")
    if value is None:
        value = config.get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return frozenset(int(v) for v in values if v is not None)
