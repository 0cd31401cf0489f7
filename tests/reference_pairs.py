"""A random pair for tests of the reference runtime, made in a second.

The draft is the target with noise on its weights, so that it is right often but not always.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

VOCAB_SIZE = 258
END_ID = 1


def write_pair(folder: Path, *, noise: float = 0.05, draft_vocab_size: int = VOCAB_SIZE) -> Path:
    """Write ``folder/target`` and ``folder/draft`` (float32, byte vocabulary)."""
    target = random_llama(VOCAB_SIZE)
    draft = random_llama(draft_vocab_size)
    rows = min(VOCAB_SIZE, draft_vocab_size)
    torch.manual_seed(1)
    with torch.no_grad():
        for ours, theirs in zip(draft.parameters(), target.parameters(), strict=True):
            value = theirs[:rows] if theirs.shape[0] == VOCAB_SIZE else theirs
            ours[: value.shape[0]] = value + noise * value.std() * torch.randn_like(value)
    for model, name in ((target, "target"), (draft, "draft")):
        write_model(model, folder / name)
    return folder


def random_llama(vocab_size: int, **changes: object) -> LlamaForCausalLM:
    """A two-layer Llama with weights large enough that its logits are far apart."""
    settings: dict[str, object] = {
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.25,
        "bos_token_id": 0,
        "eos_token_id": END_ID,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**settings, **changes}))


def write_model(model: PreTrainedModel, folder: Path) -> Path:
    """Save a transformers model with a tokenizer of bytes."""
    model.save_pretrained(folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def byte_tokenizer() -> Tokenizer:
    """Every byte is a token; ids 0 and 1 are special and have no text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": END_ID, **{c: i for i, c in enumerate(alphabet, start=2)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer
