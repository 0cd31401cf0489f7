"""Tensors of the engine shape's Triton models, written down once.

``tensorrt_llm`` and ``speculative`` (upstream: ``tensorrt_llm_bls``) carry every tensor of
TensorRT-LLM's backend at release 0.19.0, so that a client or a back-end written for it fits
unchanged; the text-only part of ``preprocessing``, ``postprocessing`` and ``ensemble`` is
served, because an ensemble must hand every tensor on. Names that are ours are in
:data:`EXTENSIONS`.

A line reads ``name TYPE [dims] flags``. Dims leave the batch dimension out. Flags: ``?``
optional, ``s`` reshaped to a scalar per request, ``r`` may differ in size within a batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from specdeploy.core.record import Record


class TensorSpec(Record):
    """One input or output as config.pbtxt declares it."""

    name: str
    data_type: str
    dims: list[int]
    optional: bool = False
    scalar: bool = False
    ragged: bool = False


class ModelContract(Record):
    """Every tensor of one Triton model."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]

    def only(self, *, inputs: set[str], outputs: set[str]) -> ModelContract:
        """Return the part with these names, in the declared order."""
        return ModelContract(
            inputs=[t for t in self.inputs if t.name in inputs],
            outputs=[t for t in self.outputs if t.name in outputs],
        )


_LINE: Final = re.compile(r"(\w+) +(\w+) +\[([-\d, ]*)\] *([?sr]*)")


def _tensors(table: str) -> list[TensorSpec]:
    return [_tensor(line.strip()) for line in table.strip().splitlines()]


def _tensor(line: str) -> TensorSpec:
    found = _LINE.fullmatch(line)
    assert found is not None, line  # noqa: S101 - a broken table is a bug
    name, data_type, dims, flags = found.groups()
    return TensorSpec(
        name=name,
        data_type=f"TYPE_{data_type}",
        dims=[int(d) for d in dims.split(",")],
        optional="?" in flags,
        scalar="s" in flags,
        ragged="r" in flags,
    )


_PREPROCESSING_INPUTS: Final = _tensors("""
    QUERY STRING [1]
    DECODER_QUERY STRING [1] ?
    REQUEST_OUTPUT_LEN INT32 [1]
    BAD_WORDS_DICT STRING [-1] ?
    STOP_WORDS_DICT STRING [-1] ?
    EMBEDDING_BIAS_WORDS STRING [-1] ?
    EMBEDDING_BIAS_WEIGHTS FP32 [-1] ?
    END_ID INT32 [1] ?
    PAD_ID INT32 [1] ?
""")

_PREPROCESSING_OUTPUTS: Final = _tensors("""
    INPUT_ID INT32 [-1]
    REQUEST_INPUT_LEN INT32 [1]
    BAD_WORDS_IDS INT32 [2, -1]
    STOP_WORDS_IDS INT32 [2, -1]
    REQUEST_OUTPUT_LEN INT32 [-1]
    OUT_END_ID INT32 [1]
    OUT_PAD_ID INT32 [1]
""")

_POSTPROCESSING_INPUTS: Final = _tensors("""
    TOKENS_BATCH INT32 [-1, -1]
    SEQUENCE_LENGTH INT32 [-1]
""")

_POSTPROCESSING_OUTPUTS: Final = _tensors("""
    OUTPUT STRING [-1]
""")

_TENSORRT_LLM_INPUTS: Final = _tensors("""
    input_ids INT32 [-1] ?r
    encoder_input_features FP32 [-1, -1] ?r
    encoder_output_lengths INT32 [1] ?s
    input_lengths INT32 [1] s
    request_output_len INT32 [1] s
    num_return_sequences INT32 [1] ?s
    draft_input_ids INT32 [-1] ?r
    decoder_input_ids INT32 [-1] ?r
    decoder_input_lengths INT32 [1] ?s
    draft_logits FP32 [-1, -1] ?r
    draft_acceptance_threshold FP32 [1] ?s
    end_id INT32 [1] ?s
    pad_id INT32 [1] ?s
    stop_words_list INT32 [2, -1] ?r
    bad_words_list INT32 [2, -1] ?r
    embedding_bias FP32 [-1] ?r
    beam_width INT32 [1] ?s
    temperature FP32 [1] ?s
    runtime_top_k INT32 [1] ?s
    runtime_top_p FP32 [1] ?s
    runtime_top_p_min FP32 [1] ?s
    runtime_top_p_decay FP32 [1] ?s
    runtime_top_p_reset_ids INT32 [1] ?s
    len_penalty FP32 [1] ?s
    early_stopping BOOL [1] ?s
    repetition_penalty FP32 [1] ?s
    min_length INT32 [1] ?s
    beam_search_diversity_rate FP32 [1] ?s
    presence_penalty FP32 [1] ?s
    frequency_penalty FP32 [1] ?s
    random_seed UINT64 [1] ?s
    return_log_probs BOOL [1] ?s
    return_context_logits BOOL [1] ?s
    return_generation_logits BOOL [1] ?s
    return_perf_metrics BOOL [1] ?s
    exclude_input_in_output BOOL [1] ?s
    stop BOOL [1] ?s
    streaming BOOL [1] ?s
    prompt_embedding_table FP16 [-1, -1] ?r
    prompt_table_extra_ids UINT64 [-1] ?r
    prompt_vocab_size INT32 [1] ?s
    cross_attention_mask BOOL [-1, -1] ?r
    mrope_rotary_cos_sin FP32 [-1] ?
    mrope_position_deltas INT64 [1] ?
    lora_task_id UINT64 [1] ?s
    lora_weights FP16 [-1, -1] ?r
    lora_config INT32 [-1, 3] ?r
    context_phase_params UINT8 [-1] ?r
    skip_cross_attn_blocks BOOL [1] ?r
    retention_token_range_starts INT32 [-1] ?r
    retention_token_range_ends INT32 [-1] ?r
    retention_token_range_priorities INT32 [-1] ?r
    retention_token_range_durations_ms INT32 [-1] ?r
    retention_decode_priority INT32 [1] ?r
    retention_decode_duration_ms INT32 [1] ?r
    guided_decoding_guide_type STRING [1] ?r
    guided_decoding_guide STRING [1] ?r
    lookahead_window_size INT32 [1] ?r
    lookahead_ngram_size INT32 [1] ?r
    lookahead_verification_set_size INT32 [1] ?r
""")

_TENSORRT_LLM_OUTPUTS: Final = _tensors("""
    output_ids INT32 [-1, -1]
    sequence_length INT32 [-1]
    cum_log_probs FP32 [-1]
    output_log_probs FP32 [-1, -1]
    context_logits FP32 [-1, -1]
    generation_logits FP32 [-1, -1, -1]
    batch_index INT32 [1]
    sequence_index INT32 [1]
    context_phase_params UINT8 [-1]
    kv_cache_alloc_new_blocks INT32 [1]
    kv_cache_reused_blocks INT32 [1]
    kv_cache_alloc_total_blocks INT32 [1]
    arrival_time_ns INT64 [1]
    first_scheduled_time_ns INT64 [1]
    first_token_time_ns INT64 [1]
    last_token_time_ns INT64 [1]
    acceptance_rate FP32 [1]
    total_accepted_draft_tokens INT32 [1]
    total_draft_tokens INT32 [1]
""")

_BLS_INPUTS: Final = _tensors("""
    text_input STRING [1]
    decoder_text_input STRING [1] ?
    image_input FP16 [-1, 3, -1, -1] ?
    image_bytes_input UINT8 [-1, -1, -1, -1] ?
    image_url_input STRING [1] ?
    video_bytes_input UINT8 [-1, -1, -1, -1] ?
    max_tokens INT32 [1]
    bad_words STRING [-1] ?
    stop_words STRING [-1] ?
    exclude_input_in_output BOOL [1] ?
    end_id INT32 [1] ?
    pad_id INT32 [1] ?
    top_k INT32 [1] ?
    top_p FP32 [1] ?
    temperature FP32 [1] ?
    length_penalty FP32 [1] ?
    repetition_penalty FP32 [1] ?
    min_length INT32 [1] ?
    presence_penalty FP32 [1] ?
    frequency_penalty FP32 [1] ?
    random_seed UINT64 [1] ?
    return_log_probs BOOL [1] ?s
    return_context_logits BOOL [1] ?s
    return_generation_logits BOOL [1] ?s
    num_return_sequences INT32 [1] ?s
    beam_width INT32 [1] ?
    stream BOOL [1] ?
    prompt_embedding_table FP16 [-1, -1] ?
    prompt_vocab_size INT32 [1] ?
    prompt_table_extra_id UINT64 [1] ?
    embedding_bias_words STRING [-1] ?
    embedding_bias_weights FP32 [-1] ?
    num_draft_tokens INT32 [1] ?
    use_draft_logits BOOL [1] ?s
    lora_task_id UINT64 [1] ?s
    lora_weights FP16 [-1, -1] ?r
    lora_config INT32 [-1, 3] ?r
    return_perf_metrics BOOL [1] ?s
    guided_decoding_guide_type STRING [1] ?
    guided_decoding_guide STRING [1] ?
""")

_BLS_OUTPUTS: Final = _tensors("""
    text_output STRING [-1]
    cum_log_probs FP32 [-1]
    output_log_probs FP32 [-1, -1]
    context_logits FP32 [-1, -1]
    generation_logits FP32 [-1, -1, -1]
    batch_index INT32 [1]
    sequence_index INT32 [1]
    kv_cache_alloc_new_blocks INT32 [1]
    kv_cache_reused_blocks INT32 [1]
    kv_cache_alloc_total_blocks INT32 [1]
    arrival_time_ns INT64 [1]
    first_scheduled_time_ns INT64 [1]
    first_token_time_ns INT64 [1]
    last_token_time_ns INT64 [1]
    acceptance_rate FP32 [1]
    total_accepted_draft_tokens INT32 [1]
    total_draft_tokens INT32 [1]
""")

_ENSEMBLE_INPUTS: Final = _tensors("""
    text_input STRING [1]
    decoder_text_input STRING [1] ?
    max_tokens INT32 [1]
    num_return_sequences INT32 [1] ?
    bad_words STRING [-1] ?
    stop_words STRING [-1] ?
    exclude_input_in_output BOOL [1] ?
    end_id INT32 [1] ?
    pad_id INT32 [1] ?
    top_k INT32 [1] ?
    top_p FP32 [1] ?
    temperature FP32 [1] ?
    length_penalty FP32 [1] ?
    repetition_penalty FP32 [1] ?
    min_length INT32 [1] ?
    presence_penalty FP32 [1] ?
    frequency_penalty FP32 [1] ?
    random_seed UINT64 [1] ?
    return_log_probs BOOL [1] ?
    return_context_logits BOOL [1] ?
    return_generation_logits BOOL [1] ?
    return_perf_metrics BOOL [1] ?
    beam_width INT32 [1] ?
    stream BOOL [1] ?
    prompt_embedding_table FP16 [-1, -1] ?
    prompt_table_extra_id UINT64 [1] ?
    prompt_vocab_size INT32 [1] ?
    embedding_bias_words STRING [-1] ?
    embedding_bias_weights FP32 [-1] ?
    lora_task_id UINT64 [1] ?
    lora_weights FP16 [-1, -1] ?r
    lora_config INT32 [-1, 3] ?r
    guided_decoding_guide_type STRING [1] ?r
    guided_decoding_guide STRING [1] ?r
""")

_ENSEMBLE_OUTPUTS: Final = _tensors("""
    text_output STRING [-1]
    cum_log_probs FP32 [-1]
    output_log_probs FP32 [-1, -1]
    context_logits FP32 [-1, -1]
    generation_logits FP32 [-1, -1, -1]
    batch_index INT32 [1]
    sequence_index INT32 [1]
    kv_cache_alloc_new_blocks INT32 [1]
    kv_cache_reused_blocks INT32 [1]
    kv_cache_alloc_total_blocks INT32 [1]
    arrival_time_ns INT64 [1]
    first_scheduled_time_ns INT64 [1]
    first_token_time_ns INT64 [1]
    last_token_time_ns INT64 [1]
    acceptance_rate FP32 [1]
    total_accepted_draft_tokens INT32 [1]
    total_draft_tokens INT32 [1]
""")

UPSTREAM: Final[Mapping[str, ModelContract]] = {
    "preprocessing": ModelContract(inputs=_PREPROCESSING_INPUTS, outputs=_PREPROCESSING_OUTPUTS),
    "postprocessing": ModelContract(inputs=_POSTPROCESSING_INPUTS, outputs=_POSTPROCESSING_OUTPUTS),
    "tensorrt_llm": ModelContract(inputs=_TENSORRT_LLM_INPUTS, outputs=_TENSORRT_LLM_OUTPUTS),
    "tensorrt_llm_bls": ModelContract(inputs=_BLS_INPUTS, outputs=_BLS_OUTPUTS),
    "ensemble": ModelContract(inputs=_ENSEMBLE_INPUTS, outputs=_ENSEMBLE_OUTPUTS),
}
"""TensorRT-LLM backend 0.19.0, by upstream's model names."""

# TensorRT-LLM 1.x names the leaf's output the same.
_NUM_OUTPUT_TOKENS: Final = _tensor("num_output_tokens INT32 [1]")

EXTENSIONS: Final[Mapping[str, list[TensorSpec]]] = {
    "tensorrt_llm": [_NUM_OUTPUT_TOKENS],
    "tensorrt_llm_bls": [_tensor("num_spec_steps INT32 [1]"), _NUM_OUTPUT_TOKENS],
    "ensemble": [_NUM_OUTPUT_TOKENS],
}
"""Outputs that are ours, by upstream's model names. ``num_output_tokens`` counts the tokens
of the answer so far, ``num_spec_steps`` its draft-then-verify rounds."""


def with_extensions(model: str) -> ModelContract:
    """Return upstream's contract of a model together with our outputs."""
    contract = UPSTREAM[model]
    return contract.evolve(outputs=[*contract.outputs, *EXTENSIONS.get(model, [])])
