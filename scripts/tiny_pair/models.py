"""Shapes, tokenizers and files of the models in the pair, in Hugging Face format."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM

PAD, START, END = "<|pad|>", "<|startoftext|>", "<|endoftext|>"
SPECIAL_TOKENS = (PAD, START, END)
PAD_ID, START_ID, END_ID = range(3)
CONTEXT = 2048


@dataclass(frozen=True)
class Shape:
    """The sizes that tell one Llama model of this family from another."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    intermediate: int


TARGET = Shape(2048, hidden=256, layers=12, heads=4, key_value_heads=2, intermediate=704)
DRAFT = Shape(2048, hidden=192, layers=2, heads=3, key_value_heads=1, intermediate=768)
MISMATCHED = Shape(512, hidden=64, layers=1, heads=1, key_value_heads=1, intermediate=128)


def config_fields(shape: Shape) -> dict[str, object]:
    """Return the fields of ``config.json``, spelt so that transformers 4 and 5 both read them."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": START_ID,
        "eos_token_id": END_ID,
        "head_dim": shape.hidden // shape.heads,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": CONTEXT,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.key_value_heads,
        "pad_token_id": PAD_ID,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": shape.vocabulary,
    }


def build_model(shape: Shape, seed: int) -> LlamaForCausalLM:
    """Return a model of ``shape`` in float32 with weights drawn from ``seed``."""
    torch.manual_seed(seed)
    fields = config_fields(shape)
    fields.pop("torch_dtype")
    # The padding row would be kept at zero and out of training; with tied weights it must not.
    config = LlamaConfig(**{**fields, "pad_token_id": None})
    return LlamaForCausalLM(config)


def load_model(folder: Path, dtype: torch.dtype) -> LlamaForCausalLM:
    """Return the model in ``folder``, ready to run in ``dtype``; nothing is downloaded."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    model.eval()
    return model


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer in ``folder``."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Return a byte-level BPE tokenizer trained on ``texts``; it decodes any text unchanged."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def save_model(folder: Path, model: LlamaForCausalLM, shape: Shape, tokenizer: Tokenizer) -> None:
    """Write a complete Hugging Face model folder, weights in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    # The output layer shares the embedding's storage, so it is left out of the file.
    weights = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    _write_json(folder / "config.json", config_fields(shape))
    ids = {"bos_token_id": START_ID, "eos_token_id": END_ID, "pad_token_id": PAD_ID}
    _write_json(folder / "generation_config.json", {**ids, "do_sample": False})
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_fields())


def _tokenizer_fields() -> dict[str, object]:
    added = {
        str(number): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for number, token in enumerate(SPECIAL_TOKENS)
    }
    return {
        "added_tokens_decoder": added,
        "bos_token": START,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "model_max_length": CONTEXT,
        "pad_token": PAD,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
