"""What a checkpoint is: the facts that planning and checking need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field

from specdeploy.core.record import Record

HeadKind = Literal["eagle", "eagle3", "medusa", "mtp", "redrafter", "other"]


class QuantizationSpec(Record):
    """How the stored weights are quantized."""

    method: str = Field(description="As the checkpoint names it: fp8, awq, gptq, mxfp4, ...")
    bits: int | None = Field(default=None, description="Bits per quantized weight.")
    group_size: int | None = Field(default=None, description="Weights that share a scale.")
    kv_dtype: str | None = Field(default=None, description="KV cache type, when declared.")
    unconverted: list[str] = Field(default=[], description="Modules kept in 16 bit, as listed.")


class RopeSpec(Record):
    """Rotary position settings, whatever the spelling in the file."""

    kind: str = Field(default="default", description="default, linear, yarn, llama3, ...")
    factor: float | None = None
    original_context_length: int | None = None


PRECISION_OF_DTYPE: Final[Mapping[str, str]] = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
}
"""Dtype of stored weights to the precision that serves them as they are."""


class SpecialIds(Record):
    """Special token ids as config.json and generation_config.json state them."""

    bos: int | None = None
    eos: list[int] = Field(default=[], description="config.json, a scalar read as one id.")
    pad: int | None = Field(default=None, description="None when absent, null or negative.")
    generation_eos: list[int] = Field(default=[], description="generation_config.json.")

    @property
    def ending(self) -> list[int]:
        """The ids that end an answer; generation_config.json wins."""
        return self.generation_eos or self.eos


class KvWidth(Record):
    """What one layer keeps per token: ``kv_heads`` times ``values_per_head`` numbers.

    Key and value together, so twice the head dimension for ordinary attention. A latent
    (MLA) layer is one head that every GPU holds whole.
    """

    kv_heads: int
    values_per_head: int
    window: int | None = Field(default=None, description="Tokens kept; None keeps all.")


class KvLayers(Record):
    """Layers of equal KV width."""

    layers: int
    width: KvWidth


class ParameterBreakdown(Record):
    """Where the parameters are. The fields add up to ``ModelSpec.parameters``."""

    embedding: int = Field(description="Token (and learned position) embeddings.")
    lm_head: int = Field(description="0 when tied to the embedding.")
    attention: int
    mlp: int = Field(description="Dense and shared-expert feed-forward weights.")
    experts: int = Field(default=0, description="Routed experts, all of them.")
    other: int = Field(description="Norms, routers, biases of experts, sinks.")

    @property
    def total(self) -> int:
        """All parameters."""
        return self.embedding + self.lm_head + self.attention + self.mlp + self.experts + self.other


class VocabularySpec(Record):
    """Sizes that are often mixed up."""

    config_rows: int = Field(description="Rows of embedding and logits, padding included.")
    tokenizer_base: int | None = Field(default=None, description="Entries of the model's vocab.")
    tokenizer_added: int | None = Field(default=None, description="Added tokens not in the base.")
    tokenizer_size: int | None = Field(default=None, description="Base + added.")
    highest_id: int | None = Field(default=None, description="Highest id that has a token.")
    unused_rows: int | None = Field(default=None, description="Rows above the highest id.")


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
    context_length: int = Field(
        description="Positions the model is declared for; 0: no limit of its own (Medusa)."
    )
    dtype: str = Field(description="As stored: bfloat16, float16, float32.")
    tie_word_embeddings: bool
    parameters: int = Field(
        description="The main model: no MTP module, no embedding that a draft head shares."
    )
    active_parameters: int | None = Field(
        default=None, description="Used for one token; differs with experts. None: all."
    )
    mtp_parameters: int = Field(default=0, description="Multi-token-prediction modules.")
    weight_bytes: int | None = Field(default=None, description="As served, in all GPUs together.")
    weight_bytes_stored: int | None = Field(
        default=None, description="All weight files' tensors; None: no weight files."
    )
    breakdown: ParameterBreakdown | None = None
    kv_layers: list[KvLayers] = Field(default=[], description="Layers that keep a KV cache.")
    state_bytes_per_sequence: int = Field(
        default=0, description="Fixed state of linear-attention layers, at tp 1."
    )
    vocabulary: VocabularySpec | None = None
    rope: RopeSpec = RopeSpec()
    special_ids: SpecialIds = SpecialIds()
    quantization: QuantizationSpec | None = None
    head: DraftHeadSpec | None = None
    multimodal: bool = False
    known_family: bool = Field(
        default=True, description="False: counted from tensor headers, not from config.json."
    )
    notes: list[str] = Field(default=[], description="Assumptions, and what was left out.")
