"""What a checkpoint is: the facts that planning and checking need."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specdeploy.core.record import Record

HeadKind = Literal["eagle", "eagle3", "medusa", "mtp", "redrafter", "other"]


class QuantizationSpec(Record):
    """How the stored weights are quantized."""

    method: str = Field(description="As the checkpoint names it: fp8, awq, gptq, mxfp4, ...")
    bits: int | None = Field(default=None, description="Bits per quantized weight.")
    group_size: int | None = Field(default=None, description="Weights that share a scale.")
    kv_dtype: str | None = Field(default=None, description="KV cache type, when declared.")


class RopeSpec(Record):
    """Rotary position settings, whatever the spelling in the file."""

    kind: str = Field(default="default", description="default, linear, yarn, llama3, ...")
    factor: float | None = None
    original_context_length: int | None = None


class SpecialIds(Record):
    """Special token ids as config.json and generation_config.json state them."""

    bos: int | None = None
    eos: list[int] = Field(default=[], description="config.json, a scalar read as one id.")
    pad: int | None = Field(default=None, description="None when absent, null or negative.")
    generation_eos: list[int] = Field(default=[], description="generation_config.json.")


class DraftHeadSpec(Record):
    """A checkpoint that is a draft head (EAGLE, Medusa, ...) and not a whole model."""

    kind: HeadKind
    draft_vocab_size: int | None = Field(default=None, description="Rows of its own lm_head.")
    has_embedding: bool | None = Field(default=None, description="None: no tensors to look at.")
    has_lm_head: bool | None = None
    has_draft_to_target_map: bool | None = Field(default=None, description="Tensor d2t.")
    has_target_to_draft_map: bool | None = Field(default=None, description="Tensor t2d.")
    fusion_input_size: int | None = Field(
        default=None, description="Input width of the projection of target hidden states."
    )
    target_hidden_size: int | None = None


class ModelSpec(Record):
    """A decoder-only checkpoint (or draft head), read from its own files.

    Sizes are of the language model; a vision tower is told by ``multimodal``.
    """

    name: str = Field(description="The directory's name, or the Hub id.")
    architecture: str
    model_type: str
    hidden_size: int
    layers: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int | None = None
    vocab_size: int = Field(description="Rows of the embedding, padding included.")
    context_length: int = Field(description="Positions the model is declared for.")
    dtype: str = Field(description="As stored: bfloat16, float16, float32.")
    tie_word_embeddings: bool
    parameters: int
    rope: RopeSpec = RopeSpec()
    special_ids: SpecialIds = SpecialIds()
    quantization: QuantizationSpec | None = None
    head: DraftHeadSpec | None = None
    multimodal: bool = False
