"""A model that says the text it was made for, so that a test knows the answer."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tiny_checkpoints import write_checkpoint
from tokenizers import Tokenizer


def write_chain(folder: Path, text: str, *, wrong: str = "") -> Path:
    """Write a model that goes round ``text``; no byte of it may occur twice.

    The layers pass the last token's embedding on, and each row of the output layer is the
    embedding of the byte before its own.

    Args:
        folder: Receives the checkpoint.
        text: What it says, over and over.
        wrong: Characters after which it says the first byte instead: a draft that errs.
    """
    write_checkpoint(folder, seed=3, hidden=64, layers=1)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids, errors = tokenizer.encode(text).ids, set(tokenizer.encode(wrong).ids)
    assert len(set(ids)) == len(ids)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"model.layers.0.{name}.weight"].zero_()
    embedding = tensors["model.embed_tokens.weight"]
    head = torch.zeros_like(embedding)
    for before, after in zip(ids, [*ids[1:], ids[0]], strict=True):
        head[ids[0] if before in errors else after] += embedding[before]
    save_file({**tensors, "lm_head.weight": head}, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    return folder


def pad_rows(folder: Path, rows: int) -> None:
    """Give a checkpoint ``rows`` more rows than its tokenizer has ids, as published ones have."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = torch.nn.functional.pad(tensors[name], (0, 0, 0, rows))
    save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "vocab_size": config["vocab_size"] + rows})
    )
