from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import causal_lm
import pytest
import text_codec
import torch
from causal_lm import CausalModel, Dtype, ModelError, load_model
from reference_pairs import VOCAB_SIZE, random_llama, write_model
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

SMALL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "initializer_range": 0.25,
}


def tokens(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, VOCAB_SIZE, (count,), generator=generator).tolist()


def plain_logits(folder: Path, ids: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Transformers alone, no cache."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    return logits


def read_in_pieces(model: CausalModel, ids: list[int], sizes: list[int]) -> torch.Tensor:
    session = model.session()
    return torch.cat(
        [session.advance(ids[session.length : session.length + size]) for size in sizes]
    )


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Architectures that differ where it matters."""
    root = tmp_path_factory.mktemp("architectures")
    torch.manual_seed(2)
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
    models = {
        "sliding": MistralForCausalLM(MistralConfig(**SMALL, sliding_window=8)),
        "mistral": MistralForCausalLM(MistralConfig(**SMALL, sliding_window=None)),
        "qwen2": Qwen2ForCausalLM(Qwen2Config(**SMALL)),
        "llama3-rope": random_llama(VOCAB_SIZE, rope_parameters=rope),
        "biased-llama": random_llama(VOCAB_SIZE, attention_bias=True),
        "gpt2": GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB_SIZE, n_embd=32, n_layer=2, n_head=2)),
        "mamba": MambaForCausalLM(
            MambaConfig(vocab_size=VOCAB_SIZE, hidden_size=32, num_hidden_layers=2, state_size=4)
        ),
    }
    with torch.no_grad():
        for parameter in models["biased-llama"].parameters():
            parameter.add_(0.1)
    return {name: write_model(model, root / name) for name, model in models.items()}


@pytest.mark.parametrize("lean", [False, True])
def test_logits_do_not_depend_on_how_tokens_are_read(pair: Path, *, lean: bool) -> None:
    model = load_model(pair / "target", dtype="fp32", lean=lean)
    ids = tokens(400)
    expected = plain_logits(pair / "target", ids, torch.float32)
    logits = read_in_pieces(model, ids, [100, 1, 1, 5, 200, 93])
    assert torch.allclose(logits, expected, atol=1e-3)
    assert torch.equal(logits.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("lean", [False, True])
def test_tokens_that_were_taken_back_leave_no_trace(pair: Path, *, lean: bool) -> None:
    model = load_model(pair / "target", dtype="fp32", lean=lean)
    ids = tokens(40)
    session = model.session()
    session.advance(ids[:20])
    session.advance(tokens(9, seed=5))
    session.rewind(20)
    assert (session.length, session.tokens) == (20, ids[:20])
    expected = plain_logits(pair / "target", ids, torch.float32)[20:]
    assert torch.allclose(session.advance(ids[20:]), expected, atol=1e-3)


@pytest.mark.parametrize("lean", [False, True])
def test_only_the_rows_that_are_asked_for_come_back(pair: Path, *, lean: bool) -> None:
    model = load_model(pair / "target", dtype="fp32", lean=lean)
    ids = tokens(10)
    last = model.session().advance(ids, keep=3)
    assert last.shape == (3, VOCAB_SIZE)
    assert torch.allclose(last, model.session().advance(ids)[-3:], atol=1e-4)


@pytest.mark.parametrize("name", ["sliding", "mistral", "qwen2", "llama3-rope", "biased-llama"])
@pytest.mark.parametrize("lean", [False, True])
def test_other_architectures_compute_what_transformers_computes(
    others: dict[str, Path], name: str, *, lean: bool
) -> None:
    model = load_model(others[name], dtype="fp32", lean=lean)
    ids = tokens(60)
    logits = read_in_pieces(model, ids, [30, 1, 4, 25])
    expected = plain_logits(others[name], ids, torch.float32)
    assert torch.allclose(logits, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "lean_class"),
    [
        ("mistral", "LeanLlama"),
        ("qwen2", "LeanLlama"),
        ("llama3-rope", "LeanLlama"),
        ("sliding", "TransformersModel"),
        ("biased-llama", "TransformersModel"),
        ("gpt2", "TransformersModel"),
    ],
)
def test_the_lean_pass_is_used_only_where_it_computes_the_same(
    others: dict[str, Path], name: str, lean_class: str
) -> None:
    assert type(load_model(others[name], dtype="fp32", lean=True)).__name__ == lean_class


@pytest.mark.parametrize("name", ["sliding", "gpt2"])
def test_rewinding_works_beyond_a_sliding_window_and_with_learned_positions(
    others: dict[str, Path], name: str
) -> None:
    session = load_model(others[name], dtype="fp32").session()
    ids = tokens(40)
    session.advance(ids[:25])
    session.advance(tokens(6, seed=3))
    session.rewind(25)
    expected = plain_logits(others[name], ids, torch.float32)[25:]
    assert torch.allclose(session.advance(ids[25:]), expected, atol=1e-3)


def test_a_recurrent_model_is_served_and_refuses_to_rewind(others: dict[str, Path]) -> None:
    model = load_model(others["mamba"], dtype="fp32")
    ids = tokens(12)
    logits = read_in_pieces(model, ids, [8, 1, 1, 1, 1])
    assert torch.allclose(logits, plain_logits(others["mamba"], ids, torch.float32), atol=1e-3)
    assert not model.supports_rewind
    session = model.session()
    session.advance(ids)
    with pytest.raises(ModelError, match="cannot be rewound"):
        session.rewind(3)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("lean", [False, True])
def test_sixteen_bit_models_stay_close_to_transformers(
    pair: Path, dtype: Dtype, *, lean: bool
) -> None:
    ids = tokens(50)
    torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    model = load_model(pair / "target", dtype=dtype, lean=lean)
    logits = read_in_pieces(model, ids, [30, 20])
    expected = plain_logits(pair / "target", ids, torch_dtype)
    assert logits.dtype == torch.float32
    assert (logits - expected).abs().max() < 0.1 * expected.abs().max()


def test_end_ids_of_generation_config_come_first(tmp_path: Path) -> None:
    folder = write_model(random_llama(VOCAB_SIZE, eos_token_id=5), tmp_path / "model")
    (folder / "generation_config.json").unlink(missing_ok=True)
    assert load_model(folder, dtype="fp32").end_ids == {5}
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert load_model(folder, dtype="fp32").end_ids == {7, 9}


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    model = random_llama(VOCAB_SIZE)
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        load_model(tmp_path, dtype="fp32")


def test_python_of_the_checkpoint_is_not_run(tmp_path: Path) -> None:
    folder = write_model(random_llama(VOCAB_SIZE), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}
    config["model_type"] = "evil"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(ModelError):
        load_model(folder, dtype="fp32")
    assert not (tmp_path / "ran").exists()


def test_an_unknown_precision_is_refused_by_name(pair: Path) -> None:
    with pytest.raises(ModelError, match="int4"):
        load_model(pair / "target", dtype="int4")  # type: ignore[arg-type] # on purpose


# As Triton's Python stub runs it: file names are ASCII, whatever the locale.
LOAD_IN_ASCII = """
import sys
sys.path[:0] = {modules}
from causal_lm import load_model
from llm_config import resolve_dtype
from text_codec import TextCodec
assert sys.getfilesystemencoding() == "ascii"
load_model({directory}, dtype=resolve_dtype({directory}, "auto"))
print(TextCodec({directory}).encode("def"))
"""


def test_a_checkpoint_is_found_by_any_name_where_file_names_are_ascii(tmp_path: Path) -> None:
    tiny = Path(__file__).parents[3] / "examples/tiny-pair/draft"
    directory = tmp_path / "wörk 世界"
    directory.symlink_to(tiny)
    modules = [str(Path(causal_lm.__file__).parent), str(Path(text_codec.__file__).parent)]
    code = LOAD_IN_ASCII.format(modules=ascii(modules), directory=ascii(str(directory)))
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **ascii_only},
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr
    assert json.loads(loaded.stdout) == text_codec.TextCodec(str(directory)).encode("def")
