"""``specdeploy check`` on real directories: files in, findings and exit codes out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_dirs import (
    LLAMA_8B,
    QWEN_7B,
    QWEN_HALF_B,
    SMALL_LLAMA,
    llama_tensors,
    write_json,
    write_model,
    write_tensors,
)
from jsonschema import Draft202012Validator
from tokenizer_files import a_bpe, a_word_list, numbered
from tokenizers import Tokenizer

from specdeploy import cli
from specdeploy.core.compat import CODES
from specdeploy.schemas import json_schema

SMALL_DRAFT = {**SMALL_LLAMA, "num_hidden_layers": 1}
QWEN_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

Report = dict[str, Any]
Check = Callable[..., tuple[int, Report]]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Run the command with ``--json`` and return its exit code and its document."""

    def run(*words: str | Path) -> tuple[int, Report]:
        status = cli.run(["check", *map(str, words), "--json"])
        report: Report = json.loads(capsys.readouterr().out)
        return status, report

    return run


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, ...]:
    """The flags that name a small pair which shares its tokenizer."""
    return named(
        write_model(tmp_path / "target", SMALL_LLAMA, tokenizer=a_bpe()),
        write_model(tmp_path / "draft", SMALL_DRAFT, tokenizer=a_bpe()),
    )


def named(target: Path, draft: Path) -> tuple[str, ...]:
    return ("--target", str(target), "--draft", str(draft))


def plans(
    folder: Path,
    target: dict[str, object],
    draft: dict[str, object],
    *,
    tokenizer: Tokenizer | None = None,
) -> tuple[str, ...]:
    """Write two directories without weights, and return the flags that name them."""
    return named(
        write_model(folder / "t", target, tokenizer=tokenizer),
        write_model(folder / "d", draft, tokenizer=tokenizer),
    )


def codes(report: Report, severity: str | None = None) -> set[str]:
    return {f["code"] for f in report["findings"] if severity in (None, f["severity"])}


def finding(report: Report, code: str) -> dict[str, Any]:
    (one,) = [f for f in report["findings"] if f["code"] == code]
    found: dict[str, Any] = one
    return found


@pytest.fixture(scope="module")
def qwen_tokenizer() -> Tokenizer:
    return a_word_list(numbered(151_643), specials=QWEN_SPECIALS)


# What belongs together


def test_a_pair_that_belongs_together_exits_0(check: Check, pair: tuple[str, ...]) -> None:
    status, report = check(*pair)
    assert status == 0
    assert (report["verdict"], report["tokens"], report["findings"]) == ("compatible", "equal", [])
    assert report["target"]["tokenizer"]["size"] == 323
    assert report["draft"]["model"]["layers"] == 1


def test_padded_vocabularies_are_usable_with_a_warning(
    check: Check, tmp_path: Path, qwen_tokenizer: Tokenizer
) -> None:
    flags = plans(tmp_path, QWEN_7B, QWEN_HALF_B, tokenizer=qwen_tokenizer)
    status, report = check(*flags)
    assert status == 0
    facts = finding(report, "vocabulary-padding-differs")["facts"]
    assert (facts["draft_unused_rows"], facts["target_unused_rows"]) == (290, 418)
    assert check(*flags, "--strict")[0] == 3
    status, report = check(*flags, "--use-draft-logits")
    assert status == 3
    assert finding(report, "logits-width-differs")["facts"]["target_row_bytes"] == 608_256


def test_tokenizers_that_differ_exit_3_and_still_print_the_document(
    check: Check, tmp_path: Path
) -> None:
    words = numbered(512)
    other = [*words[:100], words[101], words[100], *words[102:]]
    target = write_model(tmp_path / "t", SMALL_LLAMA, tokenizer=a_word_list(words))
    draft = write_model(tmp_path / "d", SMALL_DRAFT, tokenizer=a_word_list(other))
    status, report = check(*named(target, draft))
    assert status == 3
    assert report["verdict"] == "incompatible"
    assert finding(report, "tokenizer-ids-differ")["facts"]["differing_ids"] == 2


def test_a_draft_of_another_family_is_refused_without_tokenizer_files_too(
    check: Check, tmp_path: Path
) -> None:
    tinyllama = {
        **LLAMA_8B,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_scaling": None,
    }
    status, report = check(*plans(tmp_path, LLAMA_8B, tinyllama))
    assert status == 3
    assert codes(report, "error") == {"ids-beyond-vocabulary"}
    assert codes(report, "warning") >= {"eos-differs", "bos-differs", "draft-context-shorter"}


def test_two_plans_can_be_checked_and_claim_nothing_about_tokens(
    check: Check, tmp_path: Path
) -> None:
    flags = plans(tmp_path, QWEN_7B, QWEN_HALF_B)
    status, report = check(*flags)
    assert status == 0
    assert report["tokens"] == "not-compared"
    assert codes(report, "warning") == {"tokenizer-missing", "vocabulary-rows-differ"}
    assert check(*flags, "--strict")[0] == 3


def test_weights_without_a_tokenizer_are_refused(
    check: Check, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    (tmp_path / "draft" / "tokenizer.json").unlink()
    write_tensors(tmp_path / "draft", llama_tensors(SMALL_DRAFT))
    status, report = check(*pair)
    assert status == 3
    assert finding(report, "tokenizer-missing")["facts"]["side"] == "draft"


def test_the_same_weights_twice_are_a_warning(
    check: Check, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    write_model(tmp_path / "draft", SMALL_LLAMA)
    for side in ("target", "draft"):
        write_tensors(tmp_path / side, llama_tensors(SMALL_LLAMA))
    status, report = check(*pair)
    assert status == 0
    assert codes(report, "warning") == {"same-model"}
    write_tensors(tmp_path / "draft", llama_tensors(SMALL_LLAMA), fill=1)
    assert codes(check(*pair)[1], "warning") == {"draft-not-smaller"}


# Special ids and chat templates


def test_every_end_id_is_kept_and_the_turn_end_is_chosen(check: Check, tmp_path: Path) -> None:
    specials = ("<|begin|>", "<|end|>", "<|eom|>", "<|eot|>")
    chat: dict[str, object] = {"chat_template": "{{ '<|eot|>' }}", "eos_token": "<|eot|>"}
    base = {**SMALL_LLAMA, "bos_token_id": 320, "eos_token_id": 321, "pad_token_id": -1}
    target = write_model(
        tmp_path / "t",
        base,
        tokenizer=a_bpe(specials=specials),
        settings=chat,
        generation={"eos_token_id": [321, 322, 323]},
    )
    draft = {**base, "num_hidden_layers": 1}
    flags = named(target, write_model(tmp_path / "d", draft, tokenizer=a_bpe(specials=specials)))
    status, report = check(*flags)
    assert status == 0
    assert finding(report, "eos-list")["facts"] == {"end_id": 323, "stop_ids": [321, 322]}
    assert finding(report, "eos-differs")["facts"] == {"target": [321, 322, 323], "draft": [321]}
    assert finding(report, "pad-missing")["facts"]["pad_id"] == 323
    assert finding(report, "chat-template-missing")["facts"]["side"] == "draft"


def test_a_chat_template_may_be_a_file_of_its_own(
    check: Check, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    for side, template in (("target", "a"), ("draft", "b")):
        (tmp_path / side / "chat_template.jinja").write_text(template, encoding="utf-8")
    assert codes(check(*pair)[1]) == {"chat-template-differs"}


# Lengths


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


# Parallelism and hardware


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


# Other kinds of models


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


# The configuration file


def test_the_file_gives_the_pair_its_runtime_and_its_sampling(
    check: Check, tmp_path: Path, qwen_tokenizer: Tokenizer
) -> None:
    plans(tmp_path, QWEN_7B, QWEN_HALF_B, tokenizer=qwen_tokenizer)
    file = tmp_path / "pair.yaml"
    file.write_text("target: {path: t}\ndraft: {path: d}\nsampling: {temperature: 0.7}\n")
    status, report = check("pair.yaml")
    assert report["runtime"] == "reference"
    assert status == 3
    assert codes(report, "error") == {"logits-width-differs"}
    assert check("pair.yaml", "--set", "sampling.temperature=0")[0] == 0
    assert check("pair.yaml", "--set", "runtime.shape=llmapi")[0] == 0
    assert check("pair.yaml", "--no-use-draft-logits")[0] == 0


@pytest.mark.usefixtures("pair")
def test_a_length_that_does_not_fit_is_a_finding_and_not_a_usage_error(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "specdeploy.yaml").write_text(
        "target: {path: target}\ndraft: {path: draft}\nlimits: {max_seq_len: 2048}\n"
    )
    status, report = check()
    assert status == 3
    assert finding(report, "context-too-short")["facts"]["requested"] == 2048


# Broken files


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"model": {"type": "Nothing"}}'),
        ("tokenizer.json", ""),
        ("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {"content": "<a>"}}}'),
        ("added_tokens.json", '{"<a>": null}'),
        ("config.json", "{"),
    ],
)
def test_a_broken_file_is_one_clear_error(
    tmp_path: Path,
    pair: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: str,
) -> None:
    (tmp_path / "draft" / name).write_text(content)
    assert cli.run(["check", *pair, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: draft ")
    assert name in captured.err
    assert "Traceback" not in captured.err


def test_a_tokenizer_in_another_format_says_how_to_convert_it(
    tmp_path: Path, pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "draft" / "tokenizer.json").rename(tmp_path / "draft" / "tokenizer.model")
    assert cli.run(["check", *pair]) == 2
    message = capsys.readouterr().err
    assert "tokenizer.model only" in message
    assert "save_pretrained" in message


def test_an_lfs_pointer_in_place_of_a_shard_is_one_error(
    tmp_path: Path, pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4976698672\n"
    (tmp_path / "target" / "model.safetensors").write_text(pointer)
    assert cli.run(["check", *pair]) == 2
    assert "LFS" in capsys.readouterr().err


def hub_cache(folder: Path) -> Path:
    """Write a target as the Hub's cache does: a snapshot of links into blobs."""
    model = folder / "models--org--small"
    blobs = write_model(model / "blobs", SMALL_LLAMA, tokenizer=a_bpe())
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
    return snapshot


def test_a_read_only_cache_of_links_is_read_and_left_alone(
    check: Check, tmp_path: Path, pair: tuple[str, ...]
) -> None:
    snapshot = hub_cache(tmp_path)
    before = sorted(os.walk(snapshot.parents[1]))
    snapshot.chmod(0o555)
    status, _ = check(*named(snapshot, Path(pair[3])))
    snapshot.chmod(0o755)
    assert status == 0
    assert sorted(os.walk(snapshot.parents[1])) == before


def test_a_link_out_of_a_cache_that_is_half_there_is_told(
    tmp_path: Path, pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = hub_cache(tmp_path)
    (snapshot / "tokenizer.json").resolve().unlink()
    assert cli.run(["check", *named(snapshot, Path(pair[3]))]) == 2
    message = capsys.readouterr().err
    assert "tokenizer.json is a broken link to ../../blobs/tokenizer.json" in message


# Output


def test_the_document_fits_its_schema(check: Check, tmp_path: Path, pair: tuple[str, ...]) -> None:
    schema = json_schema("check-report")
    for flags in (pair, plans(tmp_path, LLAMA_8B, QWEN_HALF_B)):
        Draft202012Validator(schema).validate(check(*flags)[1])


def test_people_read_the_verdict_first_and_then_findings_by_severity(
    tmp_path: Path, pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(tmp_path / "draft" / "config.json", {**SMALL_DRAFT, "eos_token_id": 600})
    assert cli.run(["check", *pair, "--draft-length", "0"]) == 3
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("incompatible: ")
    assert lines.index("error:") < lines.index("warning:")
    assert any(line.startswith("    hint: ") for line in lines)
    assert captured.err.startswith("error: the pair is incompatible: special-id-out-of-range")


def test_strict_says_that_it_refused_a_usable_pair(
    pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["check", *pair, "--draft-length", "0", "--strict"]) == 3
    captured = capsys.readouterr()
    assert captured.out.startswith("compatible, refused by --strict: ")
    assert "draft-length-zero" in captured.err


def test_every_code_reported_is_in_the_table(check: Check, tmp_path: Path) -> None:
    _, report = check(*plans(tmp_path, LLAMA_8B, QWEN_HALF_B), "--tp", "3", "--gpu", "t4")
    assert len(codes(report)) > 5
    assert codes(report) <= CODES.keys()


def test_the_command_loads_no_heavy_library(pair: tuple[str, ...]) -> None:
    program = (
        "import sys; from specdeploy import cli; status = cli.run(sys.argv[1:]); "
        "heavy = {'torch', 'transformers', 'tritonclient', 'grpc', 'plotly'} & set(sys.modules); "
        "sys.exit(f'status {status}, loaded {heavy}' if heavy or status else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "check", *pair],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
