"""The reference runtime's converter: safetensors in, safetensors of one dtype out."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_checkpoints import write_checkpoint

from specdeploy.adapters.reference_convert import convert, main
from specdeploy.errors import CheckpointError

KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "check point's")


@pytest.mark.parametrize("dtype", list(KINDS))
def test_every_tensor_is_cast_and_declared(checkpoint: Path, tmp_path: Path, dtype: str) -> None:
    convert(checkpoint, tmp_path / "out", dtype=dtype)
    before = load_file(checkpoint / "model.safetensors")
    after = load_file(tmp_path / "out/model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name].to(KINDS[dtype]))
        assert tensor.dtype == KINDS[dtype]
    declared = json.loads((tmp_path / "out/config.json").read_text())["torch_dtype"]
    assert getattr(torch, declared) == KINDS[dtype]


def test_shards_are_kept_and_the_index_tells_the_new_size(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "in", shards=3)
    convert(source, tmp_path / "out", dtype="fp32")
    before = json.loads((source / "model.safetensors.index.json").read_text())
    after = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    assert after["weight_map"] == before["weight_map"]
    assert after["metadata"]["total_size"] == 2 * before["metadata"]["total_size"]


def test_shards_without_an_index_get_the_one_that_loading_needs(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "in", shards=2)
    index = source / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    index.unlink()
    convert(source, tmp_path / "out", dtype="fp32")
    written = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    assert written["weight_map"] == dict(sorted(places.items()))


def test_an_adapter_beside_the_weights_is_no_part_of_the_model(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "in", shards=2)
    (source / "model.safetensors.index.json").unlink()
    save_file({"lora": torch.ones(2)}, source / "adapter_model.safetensors")
    convert(source, tmp_path / "out", dtype="fp32")
    assert not (tmp_path / "out/adapter_model.safetensors").exists()


def test_a_checkpoint_that_lacks_a_shard_is_refused(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "in", shards=3)
    (source / "model.safetensors.index.json").unlink()
    (source / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match="2 of 3 weight files"):
        convert(source, tmp_path / "out", dtype="fp32")


def test_whole_numbers_keep_their_type(checkpoint: Path, tmp_path: Path) -> None:
    tensors = {"d2t": torch.arange(4), "w": torch.ones(2)}
    save_file(tensors, checkpoint / "model.safetensors")
    convert(checkpoint, tmp_path / "out", dtype="bf16")
    assert load_file(tmp_path / "out/model.safetensors")["d2t"].dtype == torch.int64


def test_side_files_are_copied_and_nothing_else(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "README.md").write_text("about")
    (checkpoint / "pytorch_model.bin").write_bytes(b"pickle")
    convert(checkpoint, tmp_path / "out", dtype="fp32")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_the_weights_can_be_read_by_whoever_can_read_the_rest(
    checkpoint: Path, tmp_path: Path
) -> None:
    convert(checkpoint, tmp_path / "out", dtype="fp32")
    modes = {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "out").iterdir()}
    assert len(modes) == 1


def test_a_dtype_is_declared_even_where_the_checkpoint_had_none(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "in")
    config = json.loads((source / "config.json").read_text())
    del config["torch_dtype"]
    (source / "config.json").write_text(json.dumps(config))
    convert(source, tmp_path / "out", dtype="fp16")
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "float16"


def test_a_nested_text_config_is_declared_too(checkpoint: Path, tmp_path: Path) -> None:
    edit_config(checkpoint, text_config={"dtype": "bfloat16", "layers": 1})
    convert(checkpoint, tmp_path / "out", dtype="fp32")
    written = json.loads((tmp_path / "out/config.json").read_text())
    assert written["text_config"] == {"dtype": "float32", "layers": 1}


def test_a_quantized_checkpoint_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    edit_config(checkpoint, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(CheckpointError, match="quantized"):
        convert(checkpoint, tmp_path / "out", dtype="fp32")
    assert not (tmp_path / "out").exists()


def test_8_bit_weights_are_refused_though_the_config_is_silent(
    checkpoint: Path, tmp_path: Path
) -> None:
    save_file({"w": torch.ones(2).to(torch.float8_e4m3fn)}, checkpoint / "model.safetensors")
    with pytest.raises(CheckpointError, match="tensor w is stored in 8 bits"):
        convert(checkpoint, tmp_path / "out", dtype="fp32")


def test_values_that_fp16_cannot_hold_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    save_file({"w": torch.tensor([1.0, 70000.0])}, checkpoint / "model.safetensors")
    with pytest.raises(CheckpointError, match="tensor w has values that"):
        convert(checkpoint, tmp_path / "out", dtype="fp16")
    convert(checkpoint, tmp_path / "out", dtype="bf16")


def test_a_pickle_is_refused_and_never_opened(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="a pickle, which is never loaded") as caught:
        convert(checkpoint, tmp_path / "out", dtype="fp32")
    assert "save_pretrained" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "not a whole"),
        ("model.safetensors", b"", "not a whole"),
        ("config.json", b"[1]", "does not hold a JSON object"),
        ("config.json", b"{", "cannot be read"),
        ("model.safetensors.index.json", b"{}", "has no weight_map"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"w": "../other.safetensors"}}',
            "a file outside the directory",
        ),
        ("model.safetensors.index.json", b'{"weight_map": {"w": "gone.safetensors"}}', "missing"),
    ],
)
def test_a_broken_checkpoint_ends_with_a_sentence_and_a_status(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    name: str,
    content: bytes,
    complaint: str,
) -> None:
    (checkpoint / name).write_bytes(content)
    words = ["--checkpoint-dir", str(checkpoint), "--output-dir", str(tmp_path / "out")]
    assert main([*words, "--dtype", "fp32"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert complaint in error


def test_an_output_that_cannot_be_written_ends_with_a_status(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    words = ["--checkpoint-dir", str(checkpoint), "--output-dir", str(tmp_path / "file/out")]
    assert main([*words, "--dtype", "fp32"]) == 1
    assert "error: " in capsys.readouterr().err
