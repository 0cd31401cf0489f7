"""Checkpoint directories of any size, without any weight: config.json and tensor headers."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path

from specdeploy.adapters.checkpoints import CheckpointFiles
from specdeploy.core.inspection import inspect_model
from specdeploy.core.models import ModelSpec
from specdeploy.core.tensors import DTYPE_BITS

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]

FACTS = json.loads((Path(__file__).parent / "data" / "model_configs.json").read_text())
# Keys of the facts that no config.json has.
_OURS = {
    "name",
    "role",
    "nested_text_config",
    "text_model_type",
    "top_level_tie_word_embeddings",
    "fields_absent_in_config",
    "computed_parameter_count",
    "kv_bytes_per_token_16bit_tp1",
    "partial_config",
    "raw_keys",
    "layer_types_summary",
    "layer_types_first",
}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 4976698672\n" % 7

LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
}


def config_of(facts: Mapping[str, object]) -> dict[str, object]:
    """Return the config.json that the facts were taken from."""
    own = {key: value for key, value in facts.items() if key not in _OURS}
    raw = facts.get("raw_keys")
    if isinstance(raw, dict):
        own |= raw
    if not facts.get("nested_text_config"):
        return own
    outer = {key: own.pop(key) for key in ("architectures", "model_type")}
    own["model_type"] = facts["text_model_type"]
    outer["tie_word_embeddings"] = facts["top_level_tie_word_embeddings"]
    return {**outer, "text_config": own, "vision_config": {"hidden_size": 1024}}


def facts_of(name: str) -> dict[str, object]:
    """Return the facts of the model whose name begins so."""
    found: dict[str, object] = next(f for f in FACTS if f["name"].startswith(name))
    return found


def write_json(path: Path, value: object) -> Path:
    """Write one JSON file."""
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_config(
    folder: Path, config: Mapping[str, object] | None = None, **changes: object
) -> Path:
    """Write a config.json (a tiny Llama unless given); return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {**(config or LLAMA), **changes})
    return folder


def read(folder: Path) -> ModelSpec:
    """Read a checkpoint as the command line does."""
    return CheckpointFiles().read_model(folder)


def spec_of(
    folder: Path, config: Mapping[str, object] | None = None, **changes: object
) -> ModelSpec:
    """Return what a directory with this config.json alone is read as."""
    return read(write_config(folder, config, **changes))


def llama_shapes(
    config: Mapping[str, object] = LLAMA, dtype: str = "BF16"
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the tensors of a Llama with this config."""
    hidden, inner, rows = (
        int(str(config[k])) for k in ("hidden_size", "intermediate_size", "vocab_size")
    )
    keys = (
        hidden * int(str(config["num_key_value_heads"])) // int(str(config["num_attention_heads"]))
    )
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (rows, hidden)}
    for i in range(int(str(config["num_hidden_layers"]))):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (hidden, hidden),
            f"{layer}.self_attn.k_proj.weight": (keys, hidden),
            f"{layer}.self_attn.v_proj.weight": (keys, hidden),
            f"{layer}.self_attn.o_proj.weight": (hidden, hidden),
            f"{layer}.mlp.gate_proj.weight": (inner, hidden),
            f"{layer}.mlp.up_proj.weight": (inner, hidden),
            f"{layer}.mlp.down_proj.weight": (hidden, inner),
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
        }
    shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (rows, hidden)}
    return {name: (dtype, shape) for name, shape in shapes.items()}


def header_of(shapes: Shapes) -> tuple[dict[str, object], int]:
    """Return a safetensors header and the bytes of its data."""
    header: dict[str, object] = {}
    end = 0
    for name, (dtype, shape) in shapes.items():
        begin, end = end, end + math.prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return header, end


def write_safetensors(path: Path, shapes: Shapes) -> Path:
    """Write a safetensors file whose data is a hole in the file system."""
    header, size = header_of(shapes)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    with path.open("r+b") as file:
        file.truncate(8 + len(text) + size)
    return path


def write_sharded(folder: Path, shapes: Shapes, shards: int = 2) -> dict[str, str]:
    """Write the tensors in several files with an index; return its weight map."""
    names = list(shapes)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        mine = {name: shapes[name] for name in names[shard::shards]}
        write_safetensors(folder / file, mine)
        weight_map |= dict.fromkeys(mine, file)
    write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})
    return weight_map


def whole_checkpoint(folder: Path) -> Path:
    """Write a tiny Llama: config and one weight file."""
    write_safetensors(write_config(folder) / "model.safetensors", llama_shapes())
    return folder


def kv_bytes(spec: ModelSpec, *, tp: int = 1, kv_dtype: str = "auto") -> tuple[int, int]:
    """Return KV bytes per token and GPU: inside the windows, and beyond them."""
    found = inspect_model(spec, path="x", tp=tp, kv_dtype=kv_dtype)
    return found.kv_bytes_per_token, found.kv_bytes_per_token_full


def published(name: str, folder: Path, **changes: object) -> ModelSpec:
    """Return a published model, some keys of its config.json changed."""
    return spec_of(folder, config_of(facts_of(name)), **changes)
