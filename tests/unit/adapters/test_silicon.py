"""Kernel tables of aiconfigurator-core: what is asked of it, and what is made of the answers."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from kernel_package import EngineHandle, Timed, forbid_package, install_package
from planning_models import model_named, stored_in

from specdeploy.adapters.silicon import SiliconTables
from specdeploy.core.hardware import find_gpu
from specdeploy.core.models import ModelSpec
from specdeploy.core.served import serve_model
from specdeploy.core.speed.load import as_array
from specdeploy.core.speed.measured_table import MeasuredTable, NotMeasured
from specdeploy.errors import MissingToolError

LLAMA, MIXTRAL = "Llama-3.1-8B", "Mixtral"


def ask(
    folder: Path,
    spec: ModelSpec | None = None,
    *,
    gpu: str = "h100-sxm",
    precision: str = "auto",
    kv_dtype: str = "auto",
    tp: int = 1,
) -> MeasuredTable | NotMeasured:
    (folder / "config.json").write_text(json.dumps({}))
    served = serve_model(spec or model_named(LLAMA), precision=precision, kv_dtype=kv_dtype, tp=tp)
    return SiliconTables().table(served, find_gpu(gpu), checkpoint=folder)


def table_of(found: MeasuredTable | NotMeasured) -> MeasuredTable:
    assert isinstance(found, MeasuredTable)
    return found


def reason_of(found: MeasuredTable | NotMeasured) -> str:
    assert isinstance(found, NotMeasured)
    return found.reason


def test_operations_are_sorted_by_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(monkeypatch)
    kernels = table_of(ask(tmp_path)).decoding(as_array(64), as_array(1), as_array(1024))
    assert kernels.products == pytest.approx(7.064e-3)
    assert kernels.layers == pytest.approx(1e-3)
    assert kernels.all_reduce == pytest.approx(2e-3)
    assert kernels.lm_head == pytest.approx(2e-3)


def test_attention_of_a_step_is_that_of_its_requests_and_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(monkeypatch)
    kernels = table_of(ask(tmp_path)).decoding(as_array(48), as_array(1), as_array(1000))
    assert kernels.attention == pytest.approx(48 * 1000 / 1e6)


def test_attention_of_prompts_is_timed_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(monkeypatch)
    kernels = table_of(ask(tmp_path)).reading(as_array(3), as_array(3000), as_array(2))
    assert kernels.attention == pytest.approx(3 * 3000 / 5e5)


def test_the_table_names_where_its_times_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(monkeypatch)
    origin = table_of(ask(tmp_path)).origin
    assert origin == ("TensorRT-LLM 1.3.0rc20 on h100_sxm (aiconfigurator-core 0.12.0)")


@pytest.mark.parametrize(
    ("precision", "gemm", "moe"),
    [
        ("bf16", "bfloat16", "bfloat16"),
        ("fp8", "fp8_static", "fp8"),
        ("int4-awq", "int4_wo", "int4_wo"),
        ("nvfp4", "nvfp4", "nvfp4"),
    ],
)
def test_weights_are_asked_for_in_their_precision(
    precision: str, gemm: str, moe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = install_package(monkeypatch)
    table_of(ask(tmp_path, model_named(MIXTRAL), precision=precision))
    assert (timed.compiled[0]["gemm"], timed.compiled[0]["moe"]) == (gemm, moe)


def test_a_dense_model_is_asked_for_without_experts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = install_package(monkeypatch)
    table_of(ask(tmp_path, precision="int8"))
    assert (timed.compiled[0]["gemm"], timed.compiled[0]["moe"]) == ("int8_wo", None)


def test_experts_in_a_format_that_the_package_lacks_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(monkeypatch)
    told = reason_of(ask(tmp_path, model_named(MIXTRAL), precision="int8"))
    assert told == "no kernels were timed in int8_wo with a bf16 cache"


def test_a_quantized_checkpoint_is_read_by_the_package_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = install_package(monkeypatch)
    table_of(ask(tmp_path, stored_in(model_named(LLAMA), "fp8", bits=8)))
    assert (timed.compiled[0]["gemm"], timed.compiled[0]["moe"]) == (None, None)


@pytest.mark.parametrize(("gpu", "mode"), [("h100-sxm", None), ("b200-sxm", "w4a8_mxfp4_mxfp8")])
def test_mxfp4_experts_are_multiplied_in_8_bit_on_blackwell_only(
    gpu: str, mode: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = install_package(monkeypatch)
    table_of(ask(tmp_path, stored_in(model_named(LLAMA), "mxfp4", bits=4), gpu=gpu))
    assert timed.compiled[0]["moe"] == mode


def test_experts_are_cut_over_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = install_package(monkeypatch)
    table_of(ask(tmp_path, model_named(MIXTRAL), tp=4))
    assert [asked["layout"] for asked in timed.compiled] == [(4, 1)]


def test_experts_are_spread_whole_where_only_that_was_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = install_package(monkeypatch, Timed(layouts=frozenset({(1, 4)})))
    table_of(ask(tmp_path, model_named(MIXTRAL), tp=4))
    assert [asked["layout"] for asked in timed.compiled] == [(4, 1), (1, 4)]


def test_prompts_attend_in_16_bit_where_only_that_was_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = install_package(monkeypatch, Timed(attention=frozenset({"bfloat16"})))
    table_of(ask(tmp_path, kv_dtype="fp8"))
    assert [asked["attention"] for asked in timed.compiled] == ["fp8", "bfloat16"]
    assert {asked["cache"] for asked in timed.compiled} == {"fp8"}


def test_missing_kernels_are_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(monkeypatch, Timed(layouts=frozenset()))
    assert reason_of(ask(tmp_path)) == "perf database error: MoE data missing"


def test_a_gpu_without_kernels_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(monkeypatch)
    assert reason_of(ask(tmp_path, gpu="a10")) == "no kernels were timed on a10"


@pytest.mark.parametrize(("precision", "kv_dtype"), [("w4a8", "bf16"), ("bf16", "nvfp4")])
def test_a_format_without_kernels_is_told(
    precision: str, kv_dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(monkeypatch)
    told = reason_of(ask(tmp_path, precision=precision, kv_dtype=kv_dtype))
    assert told == f"no kernels were timed in {precision} with a {kv_dtype} cache"


def test_without_the_package_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_package(monkeypatch)
    with pytest.raises(MissingToolError) as caught:
        ask(tmp_path)
    assert "specdeploy[silicon]" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["compile", "decode_step_per_op", "run_static_per_op"])
def test_the_fake_takes_nothing_that_the_package_does_not(name: str) -> None:
    real = pytest.importorskip("aiconfigurator_core.sdk").EngineHandle
    compiling = pytest.importorskip("aiconfigurator_core.sdk.engine").compile_engine
    takes = inspect.signature(getattr(EngineHandle, name)).parameters.keys()
    known = set(inspect.signature(getattr(real, name)).parameters)
    if name == "compile":
        known |= set(inspect.signature(compiling).parameters)
    assert takes <= known


def test_the_package_knows_a_small_model(tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core.sdk")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    served = serve_model(model_named(LLAMA))
    found = table_of(SiliconTables().table(served, find_gpu("h100-sxm"), checkpoint=tmp_path))
    kernels = found.decoding(as_array(8), as_array(1), as_array(1024))
    # 16 GB of weights at 3.35 TB/s take 4.8 ms.
    assert 4e-3 < kernels.products < 9e-3
    assert kernels.all_reduce == 0
