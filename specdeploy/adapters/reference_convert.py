"""Convert a checkpoint for the reference runtime, as ``python -m`` (a command of its own).

It stands where TensorRT-LLM's converter and engine builder stand for GPUs: a directory in,
a directory out, cast to the precision that is served. Weights are read shard by shard from
safetensors files and nothing else; a pickle is never opened.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from specdeploy.adapters.checkpoints import INDEX, SINGLE, list_weight_files
from specdeploy.adapters.hashing import checkpoint_files
from specdeploy.core.models import PRECISION_OF_DTYPE
from specdeploy.errors import CheckpointError, SpecdeployError

if TYPE_CHECKING:
    import torch

FORMAT: Final = "1"
"""Changes when the same input would be converted to something else."""

DTYPE_KEYS: Final = {"dtype", "torch_dtype"}
TORCH_NAMES: Final = {precision: dtype for dtype, precision in PRECISION_OF_DTYPE.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert; return the exit status, with one line on stderr when it is not 0."""
    parser = argparse.ArgumentParser(prog="specdeploy.adapters.reference_convert")
    parser.add_argument("--checkpoint-dir", type=Path, required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--dtype", choices=TORCH_NAMES, required=True)
    options = parser.parse_args(arguments)
    try:
        convert(options.checkpoint_dir, options.output_dir, dtype=options.dtype)
    except SpecdeployError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        sys.stderr.write(f"error: {error}{hint}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def convert(checkpoint: Path, output: Path, *, dtype: str) -> None:
    """Write the checkpoint, its floating-point tensors cast to ``dtype``, into ``output``.

    Raises:
        CheckpointError: it is quantized, incomplete or unreadable.
        OSError: the output cannot be written.
    """
    files = checkpoint_files(checkpoint)
    config = _read_config(checkpoint / "config.json")
    _refuse_quantized(config, checkpoint)
    output.mkdir(parents=True, exist_ok=True)
    _write_json(output / "config.json", _declared(config, TORCH_NAMES[dtype]))
    weights = list_weight_files(checkpoint)
    written = {path.name: _convert_shard(path, output / path.name, dtype) for path in weights}
    for path in files:
        if path not in weights and path.name not in {"config.json", INDEX}:
            shutil.copyfile(path, output / path.name)
    # transformers finds weights under another name through an index only.
    if written.keys() != {SINGLE}:
        _write_json(output / INDEX, _index(written))


def _read_config(path: Path) -> dict[str, object]:
    try:
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return config


def _refuse_quantized(config: dict[str, object], checkpoint: Path) -> None:
    for key in ("quantization_config", "compression_config"):
        if config.get(key):
            raise CheckpointError(
                f"{checkpoint} is quantized ({key} in config.json), which the reference "
                "runtime cannot serve",
                hint="name the unquantized checkpoint, or another runtime",
            )


def _declared(config: dict[str, object], dtype: str) -> dict[str, object]:
    """Return the configuration with its dtype replaced, or added when it had none."""
    changed = _with_dtype(config, dtype)
    return changed if DTYPE_KEYS & changed.keys() else {**changed, "dtype": dtype}


def _with_dtype(config: dict[str, object], dtype: str) -> dict[str, object]:
    return {
        key: _with_dtype(value, dtype)
        if key.endswith("_config") and isinstance(value, dict)
        else dtype
        if key in DTYPE_KEYS
        else value
        for key, value in config.items()
    }


def _convert_shard(source: Path, destination: Path, dtype: str) -> dict[str, int]:
    """Cast one file; return each tensor's size in bytes."""
    import torch  # noqa: PLC0415 - a second, paid only by a conversion
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - same
    from safetensors.torch import save_file  # noqa: PLC0415 - same

    kind = getattr(torch, TORCH_NAMES[dtype])
    try:
        with safe_open(source, framework="pt") as file:
            names = list(file.keys())
            tensors = {name: _cast(file.get_tensor(name), kind, name) for name in names}
    except SafetensorError as error:
        raise CheckpointError(f"{source} is not a whole safetensors file: {error}") from error
    try:
        save_file(tensors, destination, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"cannot write {destination}: {error}") from error
    # safetensors writes for the owner alone; a server may run as somebody else.
    shutil.copymode(destination.parent / "config.json", destination)
    return {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}


def _cast(tensor: torch.Tensor, kind: torch.dtype, name: str) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor.contiguous()
    if tensor.element_size() == 1:
        raise CheckpointError(
            f"tensor {name} is stored in 8 bits, which the reference runtime cannot serve",
            hint="name the unquantized checkpoint, or another runtime",
        )
    cast = tensor.to(kind).contiguous()
    if not cast.isfinite().all() and tensor.isfinite().all():
        raise CheckpointError(
            f"tensor {name} has values that {kind} cannot hold", hint="use bf16 or fp32"
        )
    return cast


def _index(written: dict[str, dict[str, int]]) -> dict[str, object]:
    sizes = [size for shard in written.values() for size in shard.values()]
    places = {name: shard for shard, tensors in written.items() for name in tensors}
    return {"metadata": {"total_size": sum(sizes)}, "weight_map": dict(sorted(places.items()))}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
