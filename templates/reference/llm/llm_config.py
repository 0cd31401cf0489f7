"""The arguments of ``LLM(**model_yaml)``, spelled as TensorRT-LLM spells them, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from causal_lm import Dtype, file_path

_DTYPES: Final[Mapping[str, Dtype]] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
}


@dataclass(frozen=True)
class SpeculativeConfig:
    """``speculative_config``: where drafts come from.

    Attributes:
        decoding_type: ``Draft_Target`` (``DraftTarget`` until TensorRT-LLM 1.2) or ``NGram``.
        max_draft_len: Draft length of requests that do not say.
        speculative_model: The draft's directory; Draft_Target only.
        max_matching_ngram_size: Longest suffix that prompt lookup compares; NGram only.
    """

    decoding_type: str
    max_draft_len: int
    speculative_model: str | None = None
    max_matching_ngram_size: int = 2

    def __post_init__(self) -> None:
        if self.max_draft_len < 1:
            raise ValueError("max_draft_len must be at least 1")
        if self.decoding_type == "NGram":
            if self.max_matching_ngram_size < 1:
                raise ValueError("max_matching_ngram_size must be at least 1")
        elif self.decoding_type not in {"Draft_Target", "DraftTarget"}:
            raise ValueError(
                f"decoding_type {self.decoding_type!r} is not one of Draft_Target, NGram"
            )
        elif not self.speculative_model:
            raise ValueError("Draft_Target needs speculative_model, the draft's directory")


@dataclass(frozen=True)
class EngineConfig:
    """Everything the reference engine needs to know, in its own units.

    Attributes:
        model: The target's directory.
        tokenizer: Directory of the tokenizer files.
        dtype: Precision of the target; ``auto`` is the checkpoint's own.
        max_batch_size: Requests computed at a time.
        max_seq_len: Prompt and answer tokens of one request; None is the target's context.
        num_threads: CPU threads of one computation.
    """

    model: str
    tokenizer: str
    dtype: Dtype
    max_batch_size: int = 1
    max_seq_len: int | None = None
    num_threads: int = 1
    trust_remote_code: bool = False
    speculative: SpeculativeConfig | None = None


_KNOWN: Final = frozenset(
    {
        *("model", "tokenizer", "dtype", "max_batch_size", "max_num_tokens", "max_seq_len"),
        *("num_threads", "trust_remote_code", "speculative_config"),
    }
)


def read_arguments(arguments: Mapping[str, Any]) -> EngineConfig:
    """Return the engine's configuration.

    Raises:
        ValueError: names the argument that is unknown or wrong.
    """
    for name in arguments:
        if name not in _KNOWN:
            raise ValueError(f"LLM got invalid argument: {name}")
    model = str(arguments["model"])
    return EngineConfig(
        model=model,
        tokenizer=str(arguments.get("tokenizer") or model),
        dtype=resolve_dtype(model, str(arguments.get("dtype", "auto"))),
        max_batch_size=int(arguments.get("max_batch_size", 1)),
        max_seq_len=arguments.get("max_seq_len"),
        num_threads=int(arguments.get("num_threads", 1)),
        trust_remote_code=bool(arguments.get("trust_remote_code", False)),
        speculative=_speculative(arguments.get("speculative_config")),
    )


def resolve_dtype(directory: str, dtype: str) -> Dtype:
    """Return the precision to compute in; ``auto`` reads config.json (float32 if unsaid)."""
    if dtype == "auto":
        text = (file_path(directory) / "config.json").read_text(encoding="utf-8-sig")
        config = json.loads(text)
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    if dtype not in _DTYPES:
        raise ValueError(f"dtype {dtype!r} is not one of auto, {', '.join(_DTYPES)}")
    return _DTYPES[dtype]


def _speculative(value: Mapping[str, Any] | None) -> SpeculativeConfig | None:
    if value is None:
        return None
    fields = dict(value)
    if "speculative_model_dir" in fields:
        fields["speculative_model"] = fields.pop("speculative_model_dir")
    try:
        return SpeculativeConfig(**fields)
    except TypeError as error:
        raise ValueError(f"speculative_config: {error}") from error
