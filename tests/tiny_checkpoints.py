"""Small Llama checkpoints with a byte-level tokenizer, made in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCABULARY = 258


def write_checkpoint(
    folder: Path, *, seed: int = 0, hidden: int = 16, layers: int = 1, shards: int = 1
) -> Path:
    """Write a random Llama checkpoint in 16 bit; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = _tensors(torch.Generator().manual_seed(seed), hidden=hidden, layers=layers)
    _write_weights(folder, tensors, shards)
    _write_json(folder / "config.json", _config(hidden, layers))
    ids = {"bos_token_id": 256, "eos_token_id": 257}
    _write_json(folder / "generation_config.json", ids)
    _tokenizer().save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>"})
    return folder


def _config(hidden: int, layers: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": hidden // 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 256,
        "eos_token_id": 257,
        "torch_dtype": "bfloat16",
    }


def _tensors(generator: torch.Generator, *, hidden: int, layers: int) -> dict[str, torch.Tensor]:
    def random(*shape: int) -> torch.Tensor:
        return (0.05 * torch.randn(*shape, generator=generator)).to(torch.bfloat16)

    tensors = {"model.embed_tokens.weight": random(VOCABULARY, hidden)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors[f"{prefix}.self_attn.{name}.weight"] = random(hidden, hidden)
        for name in ("gate_proj", "up_proj"):
            tensors[f"{prefix}.mlp.{name}.weight"] = random(2 * hidden, hidden)
        tensors[f"{prefix}.mlp.down_proj.weight"] = random(hidden, 2 * hidden)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{name}.weight"] = torch.ones(hidden, dtype=torch.bfloat16)
    tensors["model.norm.weight"] = torch.ones(hidden, dtype=torch.bfloat16)
    return tensors


def _write_weights(folder: Path, tensors: dict[str, torch.Tensor], shards: int) -> None:
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    places: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = names[number::shards]
        save_file({n: tensors[n] for n in part}, folder / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(part, file))
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    _write_json(folder / "model.safetensors.index.json", index)


def _tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
