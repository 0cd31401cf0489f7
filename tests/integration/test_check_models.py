"""``specdeploy check`` on lengths, parallelism, GPUs, vision models and draft heads."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_runs import SMALL_DRAFT, Check, a_pair, checker, codes, finding, named, plans
from checkpoint_dirs import (
    LLAMA_8B,
    QWEN_7B,
    QWEN_HALF_B,
    SMALL_LLAMA,
    write_model,
    write_tensors,
)
from tokenizer_files import a_bpe

from specdeploy import cli


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    return checker(capsys)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, ...]:
    return a_pair(tmp_path)


def test_the_drafts_context_limits_what_may_be_asked(check: Check, tmp_path: Path) -> None:
    flags = plans(
        tmp_path, {**SMALL_LLAMA, "max_position_embeddings": 4096}, SMALL_DRAFT, tokenizer=a_bpe()
    )
    status, report = check(*flags, "--max-seq-len", "4096")
    assert status == 3
    assert finding(report, "context-too-short")["facts"]["usable"] == 2044
    assert check(*flags, "--max-seq-len", "2044")[0] == 0
    assert finding(check(*flags)[1], "draft-context-shorter")["facts"]["usable"] == 2044


@pytest.mark.parametrize(
    "rope",
    [
        LLAMA_8B["rope_scaling"],
        {"type": "yarn", "factor": 4.0},
        {"type": "linear", "factor": 8.0},
        None,
    ],
    ids=["llama3", "yarn", "linear", "null"],
)
def test_a_rope_factor_never_lengthens_the_context(
    check: Check, tmp_path: Path, rope: object
) -> None:
    target = write_model(tmp_path / "t", {**LLAMA_8B, "rope_scaling": rope})
    status, report = check("--target", target, "--method", "none")
    assert status == 0
    assert report["target"]["model"]["context_length"] == 131_072


def test_an_old_trtllm_does_not_know_llama3_rope(check: Check, tmp_path: Path) -> None:
    target = write_model(tmp_path / "t", LLAMA_8B)
    flags = ("--target", target, "--method", "none", "--runtime", "engine")
    status, report = check(*flags, "--set", "runtime.trtllm_version=0.11.0")
    assert status == 3
    assert "0.12" in finding(report, "rope-needs-newer-trtllm")["hint"]


def test_heads_that_tp_does_not_divide_name_the_usable_tp(check: Check, tmp_path: Path) -> None:
    status, report = check(
        "--target", write_model(tmp_path / "t", QWEN_7B), "--method", "none", "--tp", "8"
    )
    assert status == 3
    assert finding(report, "heads-not-divisible")["facts"]["usable_tp"] == [1, 2, 4]


def test_a_quantized_draft_that_tp_would_split_is_refused(check: Check, tmp_path: Path) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    flags = plans(tmp_path, QWEN_7B, {**QWEN_HALF_B, "quantization_config": awq})
    status, report = check(*flags, "--tp", "2")
    assert status == 3
    assert finding(report, "quantization-group-split")["facts"]["remainder"] == 64
    assert "quantization-group-split" not in codes(check(*flags, "--set", "draft.tp=1")[1])


def test_fp8_on_an_ampere_gpu_is_refused(check: Check, pair: tuple[str, ...]) -> None:
    status, report = check(*pair, "--precision", "fp8", "--gpu", "a100")
    assert status == 3
    assert codes(report, "error") == {"gpu-precision-unsupported"}
    assert check(*pair, "--precision", "fp8", "--gpu", "NVIDIA L40S")[0] == 0


def test_an_unknown_gpu_is_a_usage_error(
    pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["check", *pair, "--gpu", "h10"]) == 2
    assert "unknown GPU 'h10'" in capsys.readouterr().err


def test_a_target_that_takes_images_is_served_text_only(check: Check, tmp_path: Path) -> None:
    flat = {
        **QWEN_7B,
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "vision_config": {"depth": 32},
    }
    text = {**QWEN_7B, "model_type": "qwen3_vl_text", "head_dim": 128}
    nested = {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "text_config": text,
        "tie_word_embeddings": False,
        "vision_config": {"depth": 27},
    }
    for number, target in enumerate((flat, nested)):
        status, report = check(*plans(tmp_path / str(number), target, QWEN_HALF_B))
        assert status == 0
        assert finding(report, "multimodal-model")["facts"]["side"] == "target"
        assert report["target"]["model"]["hidden_size"] == 3584


def a_head(folder: Path, *, leave_out: tuple[str, ...] = (), **changes: object) -> Path:
    """Write an EAGLE-3 head of the small model, with its tensors."""
    config = {
        **SMALL_DRAFT,
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": 128,
        **changes,
    }
    hidden = config["hidden_size"]
    assert isinstance(hidden, int)
    shapes = {
        "fc.weight": [hidden, 3 * hidden],
        "lm_head.weight": [128, hidden],
        "d2t": [128],
        "t2d": [512],
        "norm.weight": [hidden],
    }
    for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        shapes[f"midlayer.{name}.weight"] = [hidden]
    for name in ("q", "k", "v"):
        shapes[f"midlayer.self_attn.{name}_proj.weight"] = [hidden, 2 * hidden]
    shapes["midlayer.self_attn.o_proj.weight"] = [hidden, hidden]
    for name in ("gate", "up"):
        shapes[f"midlayer.mlp.{name}_proj.weight"] = [128, hidden]
    shapes["midlayer.mlp.down_proj.weight"] = [hidden, 128]
    directory = write_model(folder / "head", config)
    kept = {name: shape for name, shape in shapes.items() if name not in leave_out}
    write_tensors(directory, kept)
    return directory


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_model(tmp_path / "target", SMALL_LLAMA, tokenizer=a_bpe())


def test_an_eagle3_head_with_a_reduced_output_fits(
    check: Check, tmp_path: Path, target: Path
) -> None:
    status, report = check(*named(target, a_head(tmp_path)), "--method", "eagle3")
    assert (status, report["tokens"], report["findings"]) == (0, "not-needed", [])


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ("d2t", "head-mapping-missing"),
        ("t2d", "head-mapping-missing"),
        ("lm_head.weight", "head-lm-head-missing"),
    ],
)
def test_an_eagle3_head_without_a_tensor_it_needs_is_refused(
    check: Check, tmp_path: Path, target: Path, missing: str, code: str
) -> None:
    head = a_head(tmp_path, leave_out=(missing,))
    status, report = check(*named(target, head), "--method", "eagle3")
    assert status == 3
    assert code in codes(report, "error")


def test_an_eagle3_head_of_another_hidden_size_is_refused(
    check: Check, tmp_path: Path, target: Path
) -> None:
    head = a_head(
        tmp_path,
        hidden_size=32,
        intermediate_size=128,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    status, report = check(*named(target, head), "--method", "eagle3")
    facts = finding(report, "head-hidden-size-differs")["facts"]
    assert status == 3
    assert (facts["target_hidden_size"], facts["head_hidden_size"]) == (64, 32)


def test_a_head_with_few_positions_is_refused_for_long_requests(
    check: Check, tmp_path: Path
) -> None:
    target = write_model(tmp_path / "t", {**SMALL_LLAMA, "max_position_embeddings": 131_072})
    flags = (*named(target, a_head(tmp_path)), "--method", "eagle3")
    status, report = check(*flags, "--max-seq-len", "8192")
    assert status == 3
    assert "2048" in finding(report, "context-too-short")["message"]


def test_a_method_the_runtime_cannot_serve_names_those_it_can(
    check: Check, tmp_path: Path, target: Path
) -> None:
    head = a_head(tmp_path)
    status, report = check(*named(target, head), "--method", "eagle3", "--runtime", "reference")
    assert status == 3
    assert "draft_target, ngram" in finding(report, "method-not-served")["hint"]


def test_prompt_lookup_needs_no_draft(check: Check, target: Path, pair: tuple[str, ...]) -> None:
    status, report = check("--target", target, "--method", "ngram")
    assert (status, report["draft"], report["findings"]) == (0, None, [])
    assert codes(check(*pair, "--method", "ngram")[1]) == {"draft-not-used"}


def test_a_draft_method_without_a_draft_is_a_usage_error(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("draft_target", "eagle3"):
        assert cli.run(["check", "--target", str(target), "--method", method]) == 2
        assert "--draft" in capsys.readouterr().err
