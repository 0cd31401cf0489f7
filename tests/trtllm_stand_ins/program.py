"""What ``trtllm-build``, ``convert_checkpoint.py`` and ``quantize.py`` run as, in the tests.

Nothing but the standard library. Which options exist comes from ``tools.json`` beside the
programs; whatever is not in it is refused by argparse. ``trouble.json`` tells one of them to go
wrong. What is written has the layout and the keys of the real tools' files, and the builder's
silent changes (``tensorrt_llm/builder.py``) are made here once more, on their own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, TextIO

FORMATS = {"fp8": "FP8", "int4_awq": "W4A16_AWQ", "int8_sq": "W8A8_SQ_PER_CHANNEL"}
WEIGHT_ONLY = {"int8": "W8A16", "int4": "W4A16"}
MODES = {None: 1, "draft_tokens_external": 2}
SWITCHES = (
    "use_paged_context_fmha",
    "use_fp8_context_fmha",
    "context_fmha",
    "remove_input_padding",
)
LAST_WORDS = {
    "gpu-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB.",
    "architecture": "[TRT] [E] Error Code 9: Target GPU SM 75 is not supported by this release",
    "space": "OSError: [Errno 28] No space left on device",
    "version": "[TRT] [E] Error Code 1: Serialization (Version tag does not match.)",
    "library": "ImportError: libnvinfer.so.10: cannot open shared object file",
    "unknown": "AssertionError: something that nobody has seen before",
}
# Real logs are full of these, and the build goes on.
NOISE = "[TRT] [W] Tactic device request: 4000MB, out of memory, skipping the tactic"


def main(tool: str, folder: str) -> None:
    """Run as ``tool``; ``folder`` is where it is installed."""
    tools = json.loads((Path(folder) / "tools.json").read_text())
    options = vars(_parser(tool, tools["options"][tool]).parse_args())
    _say(sys.stdout, NOISE)
    trouble = _trouble(Path(folder), tool, options)
    if tool == "trtllm-build":
        _build(options, tools["version"], trouble)
    else:
        _convert(options, trouble)
    _say(sys.stdout, f"{tool} is done")


def _parser(tool: str, known: dict[str, Any]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=tool, allow_abbrev=False)
    for name, option in known.items():
        if option["switch"]:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            kind = int if option["number"] else str
            parser.add_argument(f"--{name}", type=kind, choices=option["values"] or None)
    return parser


def _trouble(folder: Path, tool: str, options: dict[str, Any]) -> str | None:
    file = folder / "trouble.json"
    told = json.loads(file.read_text()) if file.exists() else {}
    where = f"{options.get('model_dir') or options.get('checkpoint_dir')}"
    meant = told.get("tool") == tool and told.get("where", "") in where
    return told["how"] if meant else None


def _convert(options: dict[str, Any], trouble: str | None) -> None:
    source = json.loads((Path(options["model_dir"]) / "config.json").read_text())
    output = Path(options["output_dir"])
    output.mkdir(parents=True, exist_ok=True)
    ranks = options["tp_size"] * options["pp_size"]
    _go_wrong(trouble, output / "rank0.safetensors")
    config = {
        "architecture": source["architectures"][0],
        "dtype": options["dtype"],
        "vocab_size": source["vocab_size"],
        "max_position_embeddings": source["max_position_embeddings"],
        "mapping": {"world_size": ranks, "tp_size": ranks, "pp_size": options["pp_size"]},
        "quantization": {
            "quant_algo": _quant_algo(options),
            "kv_cache_quant_algo": _kv_algo(options),
        },
    }
    (output / "config.json").write_text(json.dumps(config))
    for rank in range(ranks):
        (output / f"rank{rank}.safetensors").write_bytes(b"weights of rank %d" % rank)


def _quant_algo(options: dict[str, Any]) -> str | None:
    if options.get("qformat"):
        return FORMATS[options["qformat"]]
    return WEIGHT_ONLY[options["weight_only_precision"]] if options["use_weight_only"] else None


def _kv_algo(options: dict[str, Any]) -> str | None:
    for name in ("fp8", "int8"):
        if options.get("kv_cache_dtype") == name or options.get(f"{name}_kv_cache"):
            return name.upper()
    return None


def _build(options: dict[str, Any], version: str, trouble: str | None) -> None:
    checkpoint = Path(options["checkpoint_dir"])
    pretrained = json.loads((checkpoint / "config.json").read_text())
    output = Path(options["output_dir"])
    output.mkdir(parents=True, exist_ok=True)
    _go_wrong(trouble, output / "rank0.engine")
    drafted = 0 if trouble == "other-engine" else options["max_draft_len"] or 0
    mode = options["speculative_decoding_mode"]
    batch, tokens = options["max_batch_size"], options["max_num_tokens"]
    plugins = {name: options[name] == "enable" for name in SWITCHES}
    config = {
        "version": version,
        "pretrained_config": pretrained,
        "build_config": {
            "max_batch_size": batch,
            "max_seq_len": int(options["max_seq_len"]) + (drafted if mode else 0),
            "max_num_tokens": max(tokens, batch * (drafted + 1)) if mode else tokens,
            "max_draft_len": drafted,
            "speculative_decoding_mode": MODES[mode],
            "gather_generation_logits": options["gather_generation_logits"],
            "plugin_config": {**plugins, "tokens_per_block": options["tokens_per_block"]},
        },
    }
    (output / "config.json").write_text(json.dumps(config))
    for rank in range(pretrained["mapping"]["world_size"]):
        if not (trouble == "rank-missing" and rank == 0):
            (output / f"rank{rank}.engine").write_bytes(b"engine of rank %d" % rank)
    Path(options["output_timing_cache"]).write_bytes(b"timings")


def _go_wrong(trouble: str | None, half_written: Path) -> None:
    if trouble is None or trouble in {"other-engine", "rank-missing"}:
        return
    half_written.write_bytes(bytes(1 << 20))
    if trouble == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "hang":
        time.sleep(600)
    _fail(LAST_WORDS[trouble])


def _fail(words: str) -> NoReturn:
    _say(sys.stderr, "Traceback (most recent call last):")
    _say(sys.stderr, words)
    sys.exit(1)


def _say(stream: TextIO, words: str) -> None:
    stream.write(f"{words}\n")
    stream.flush()
