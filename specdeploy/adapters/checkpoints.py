"""Hugging Face checkpoint directories: JSON and tensor headers only; nothing in them runs.

Nothing is written, so that read-only caches work.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Final, final

from specdeploy.adapters.json_files import (
    LARGEST_POINTER_BYTES,
    broken_link,
    file_size,
    pointer_size,
    read_json_object,
    read_optional_json,
    read_small_file,
    unreadable,
)
from specdeploy.adapters.safetensors_headers import LfsPointerError, read_header
from specdeploy.adapters.tokenizer_files import read_tokenizer_sizes
from specdeploy.core.checkpoint import CheckpointContents
from specdeploy.core.describe import describe_checkpoint
from specdeploy.core.models import PRECISION_OF_DTYPE, ModelSpec
from specdeploy.core.tensors import TensorInfo
from specdeploy.errors import CheckpointError

CONFIG: Final = "config.json"
INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
# Endings of what a converter and a tokenizer read beside the weights, and nothing else: a
# README makes no engine stale.
SIDE_FILES: Final = (".json", ".jinja", ".model", ".tiktoken", ".py", "merges.txt", "vocab.txt")
TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
_SHARD: Final = re.compile(r"-\d+-of-(\d{1,6})\.safetensors$")
_NOT_WEIGHTS: Final = ("adapter_", "consolidated")
_PICKLES: Final = ("pytorch_model*.bin", "medusa_lm_head.pt", "consolidated*.pth")
_BYTES_PER_GB: Final = 10**9


@final
class CheckpointFiles:
    """Reads model facts from a directory."""

    def read_model(self, path: Path) -> ModelSpec:
        """Return the model's facts.

        Raises:
            CheckpointError: a file is missing, broken or of an unknown family.
        """
        directory = checked_directory(path)
        contents = CheckpointContents(
            name=checkpoint_name(directory),
            config=read_json_object(directory / CONFIG),
            generation=read_optional_json(directory / "generation_config.json"),
            quantization=read_optional_json(directory / "hf_quant_config.json"),
            tokenizer=read_tokenizer_sizes(directory),
        )
        try:
            tensors = _read_tensors(directory)
        except LfsPointerError as error:
            raise _pointer_found(error, contents) from error
        pickles = _pickle_bytes(directory) if tensors is None else None
        return describe_checkpoint(replace(contents, tensors=tensors, pickle_bytes=pickles))


def checked_directory(path: Path) -> Path:
    """Return ``path`` when it is a directory with a config.json.

    Raises:
        CheckpointError: it is not, with what it seems to be instead.
    """
    try:
        names = set(os.listdir(path))  # noqa: PTH208 - one call tells missing, file, forbidden
    except NotADirectoryError as error:
        raise CheckpointError(
            f"{path} is a file; a checkpoint is a directory with a config.json"
        ) from error
    except (OSError, ValueError) as error:
        # os.path, unlike pathlib, answers for names that the system refuses.
        if os.path.islink(path):  # noqa: PTH114
            raise broken_link(path) from error
        failure = error if isinstance(error, OSError) else OSError(str(error))
        raise unreadable(path, failure) from error
    if CONFIG in names:
        return path
    raise CheckpointError(f"{path} has no {CONFIG}", hint=_without_config(names))


def list_weight_files(directory: Path) -> list[Path]:
    """Return the safetensors files that hold the weights, sorted; empty when there are none.

    The index decides which files count; without one, model.safetensors, else every shard.

    Raises:
        CheckpointError: a file that the index or the shards' numbering names is missing.
    """
    if os.path.lexists(directory / INDEX):
        return sorted({directory / name for name in _weight_map(directory).values()})
    if os.path.lexists(directory / SINGLE):
        return [directory / SINGLE]
    files = sorted(directory.glob("*.safetensors"))
    usual = [path for path in files if not path.name.startswith(_NOT_WEIGHTS)]
    _check_numbering(usual)
    return usual or [path for path in files if path.name.startswith("consolidated")]


def list_tokenizer_files(directory: Path) -> list[Path]:
    """Return the tokenizer's files that are there, in a fixed order."""
    return [directory / name for name in TOKENIZER_FILES if (directory / name).is_file()]


def checkpoint_name(directory: Path) -> str:
    """Return the Hub id that a cache folder is for, else the directory's name."""
    absolute = directory.absolute()
    for part in absolute.parts:
        if part.startswith("models--"):
            return _printable(part.removeprefix("models--").replace("--", "/", 1))
    return _printable(directory.resolve().name or str(absolute))


def _printable(name: str) -> str:
    """Replace the bytes of a file name that are not UTF-8."""
    return name.encode("utf-8", "replace").decode()


def _read_tensors(directory: Path) -> list[TensorInfo] | None:
    files = list_weight_files(directory)
    if not files:
        return None
    headers = {path.name: read_header(path) for path in files}
    if os.path.lexists(directory / INDEX):
        _check_index(_weight_map(directory), headers)
    tensors = [tensor for header in headers.values() for tensor in header]
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise CheckpointError(f"two weight files in {directory} hold the same tensor")
    return tensors


def _weight_map(directory: Path) -> dict[str, str]:
    table = read_json_object(directory / INDEX).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{INDEX} has no weight_map")
    names: dict[str, str] = {}
    for tensor, file in table.items():
        if not isinstance(file, str) or Path(file).name != file or not file:
            raise CheckpointError(f"{INDEX} names a file outside the directory: {file!r:.80}")
        names[tensor] = file
    _check_present(directory, set(names.values()))
    return names


def _check_present(directory: Path, names: set[str]) -> None:
    missing = sorted(name for name in names if not os.path.lexists(directory / name))
    if missing:
        raise CheckpointError(
            f"{len(missing)} of {len(names)} weight files are missing (first: {missing[0]!r:.80})",
            hint=f"{INDEX} names them; download the checkpoint again",
        )


def _check_numbering(files: list[Path]) -> None:
    counts = {int(match[1]) for path in files if (match := _SHARD.search(path.name))}
    if len(counts) > 1:
        raise CheckpointError(f"weight files of two different sets in {files[0].parent}")
    if counts and len(files) < max(counts):
        raise CheckpointError(f"{len(files)} of {max(counts)} weight files are there")


def _check_index(index: dict[str, str], headers: dict[str, list[TensorInfo]]) -> None:
    held = {name: {tensor.name for tensor in header} for name, header in headers.items()}
    stale = [tensor for tensor, file in index.items() if tensor not in held[file]]
    if stale:
        raise CheckpointError(
            f"{INDEX} is stale: {len(stale)} tensors are not where it says "
            f"(first: {stale[0]!r:.80} in {index[stale[0]]!r:.80})",
            hint="index and weight files are of different downloads",
        )


def _pointer_found(error: LfsPointerError, contents: CheckpointContents) -> CheckpointError:
    """Say what should have been there, as far as the config tells."""
    expected = ""
    with contextlib.suppress(CheckpointError):
        spec = describe_checkpoint(contents)
        if spec.weight_bytes is not None:
            kind = spec.quantization.method if spec.quantization else PRECISION_OF_DTYPE[spec.dtype]
            expected = (
                f"; expected about {spec.weight_bytes / _BYTES_PER_GB:.2f} GB in total for "
                f"{spec.parameters:,} {kind} parameters"
            )
    whole = pointer_size(error.pointer)
    stands_for = f", which stands for {whole:,} bytes" if whole else ""
    return CheckpointError(
        f"{error}{stands_for}{expected}",
        hint="run `git lfs pull` in the checkpoint, or download it with `hf download`",
    )


def list_pickles(directory: Path) -> list[Path]:
    """Return the pickled weight files, sorted; they are never opened."""
    return sorted({path for pattern in _PICKLES for path in directory.glob(pattern)})


def _pickle_bytes(directory: Path) -> int | None:
    files = list_pickles(directory)
    return sum(map(_pickle_size, files)) if files else None


def _pickle_size(path: Path) -> int:
    """Return a file's size; only what is too small for weights is looked into."""
    size = file_size(path)
    if size <= LARGEST_POINTER_BYTES:
        read_small_file(path, largest=LARGEST_POINTER_BYTES)
    return size


def _without_config(names: set[str]) -> str:
    if not names:
        return "the directory is empty"
    if "snapshots" in names:
        return "this is the cache folder of a Hub model; give one folder of its snapshots/"
    if "adapter_config.json" in names:
        return "this is a LoRA adapter; give the model it belongs to, or merge it first"
    if "params.json" in names:
        return "this is Mistral's own format; give the Hugging Face one"
    if any(name.endswith(".gguf") for name in names):
        return "GGUF files are not read; give the Hugging Face checkpoint"
    return "give the directory that holds the model's Hugging Face files"
