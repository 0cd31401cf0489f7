"""Writes checkpoint directories: config.json of known models, tokenizers, small weight files."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizer_files import write_tokenizer
from tokenizers import Tokenizer

SMALL_LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 320,
    "eos_token_id": 322,
    "pad_token_id": 320,
}
QWEN_7B: dict[str, object] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "pad_token_id": 151643,
}
QWEN_HALF_B: dict[str, object] = {
    **QWEN_7B,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
LLAMA_8B: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}


def write_model(
    directory: Path,
    config: Mapping[str, object],
    *,
    tokenizer: Tokenizer | None = None,
    settings: dict[str, object] | None = None,
    generation: Mapping[str, object] | None = None,
) -> Path:
    """Write a directory without weights, as planning takes it."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", config)
    if generation is not None:
        write_json(directory / "generation_config.json", generation)
    if tokenizer is not None:
        write_tokenizer(directory, tokenizer, settings=settings)
    return directory


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write one JSON object."""
    path.write_text(json.dumps(value), encoding="utf-8")


def write_tensors(directory: Path, shapes: Mapping[str, Sequence[int]], *, fill: int = 0) -> Path:
    """Write model.safetensors of 16-bit tensors whose bytes are all ``fill``."""
    header: dict[str, object] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * _product(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    path = directory / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes([fill]) * end)
    return path


def llama_tensors(config: Mapping[str, object]) -> dict[str, list[int]]:
    """Return name and shape of every tensor of a Llama-style model."""
    hidden, rows, mlp = (_size(config, k) for k in ("hidden_size", "vocab_size", _MLP))
    shapes = {"model.embed_tokens.weight": [rows, hidden], "model.norm.weight": [hidden]}
    shapes["lm_head.weight"] = [rows, hidden]
    for layer in range(_size(config, "num_hidden_layers")):
        name = f"model.layers.{layer}"
        for part in ("q", "k", "v", "o"):
            shapes[f"{name}.self_attn.{part}_proj.weight"] = [hidden, hidden]
        for part in ("gate", "up"):
            shapes[f"{name}.mlp.{part}_proj.weight"] = [mlp, hidden]
        shapes[f"{name}.mlp.down_proj.weight"] = [hidden, mlp]
        for part in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{name}.{part}.weight"] = [hidden]
    return shapes


_MLP = "intermediate_size"


def _size(config: Mapping[str, object], key: str) -> int:
    value = config[key]
    assert isinstance(value, int)
    return value


def _product(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
