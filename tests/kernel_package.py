"""The part of aiconfigurator-core that is used, as strict as the real one, with simple times."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import ClassVar, Final

import pytest

Operation = tuple[str, float, float, str]

SYSTEMS: Final = frozenset({"h100_sxm", "b200_sxm"})
RELEASE: Final = "1.3.0rc20"
VERSION: Final = "0.12.0"
WEIGHTS: Final = frozenset({"bfloat16", "fp8_static", "nvfp4", "int4_wo", "int8_wo", None})
EXPERTS: Final = frozenset({"bfloat16", "fp8", "nvfp4", "int4_wo", "w4a8_mxfp4_mxfp8", None})


@dataclass
class Timed:
    """What the fake has kernels for; anything else is missing from its tables.

    Attributes:
        layouts: Pairs of the GPUs that experts are cut over, and spread over.
        attention: Types of attention over a prompt.
    """

    layouts: frozenset[tuple[int, int]] = frozenset({(1, 1), (2, 1), (4, 1)})
    attention: frozenset[str] = frozenset({"bfloat16", "fp8"})
    compiled: list[dict[str, object]] = field(default_factory=list)


class MissingDataError(RuntimeError):
    """As the package raises it: more than one line."""


class EngineHandle:
    """``aiconfigurator_core.sdk.EngineHandle``: milliseconds by operation."""

    timed: ClassVar[Timed]

    @classmethod
    def compile(
        cls,
        model_path: str,
        system: str,
        backend: str,
        *,
        tp_size: int = 1,
        moe_tp_size: int | None = None,
        moe_ep_size: int | None = None,
        gemm_quant_mode: str | None = None,
        moe_quant_mode: str | None = None,
        kvcache_quant_mode: str | None = None,
        fmha_quant_mode: str | None = None,
    ) -> EngineHandle:
        """Return an engine for a directory with a config.json; a Hub id would be downloaded."""
        assert (Path(model_path) / "config.json").is_file()
        assert backend == "trtllm"
        assert system in SYSTEMS
        assert gemm_quant_mode in WEIGHTS
        assert moe_quant_mode in EXPERTS
        assert kvcache_quant_mode in {"bfloat16", "fp8", "int8"}
        assert fmha_quant_mode is not None
        assert moe_tp_size is not None
        assert moe_ep_size is not None
        assert tp_size == moe_tp_size * moe_ep_size or (moe_tp_size, moe_ep_size) == (1, 1)
        cls.timed.compiled.append(
            {
                "gemm": gemm_quant_mode,
                "moe": moe_quant_mode,
                "cache": kvcache_quant_mode,
                "attention": fmha_quant_mode,
                "layout": (moe_tp_size, moe_ep_size),
            }
        )
        return cls((moe_tp_size, moe_ep_size), fmha_quant_mode)

    def __init__(self, layout: tuple[int, int], attention: str) -> None:
        self._layout, self._attention = layout, attention

    def decode_step_per_op(self, gen_tokens: int, isl: int, osl: int) -> list[Operation]:
        """Return a step of ``gen_tokens`` requests at context ``isl + 1``."""
        self._need(self._layout in self.timed.layouts, "MoE data missing")
        assert type(gen_tokens) is type(isl) is int
        assert gen_tokens >= 1
        assert isl >= 1
        assert osl == 2
        return [
            ("generation_embedding", 0.25, 0.0, "empirical"),
            ("generation_add_norm_1", 0.5, 0.0, "empirical"),
            ("generation_qkv_gemm", 3.0 + gen_tokens / 1000, 0.0, "silicon"),
            ("generation_attention", gen_tokens * (isl + 1) / 1000, 0.0, "silicon"),
            ("generation_moe_pre_dispatch", 0.5, 0.0, "silicon"),
            ("generation_moe", 4.0, 0.0, "silicon"),
            ("generation_act_gate", 0.25, 0.0, "empirical"),
            ("generation_logits_gemm", 2.0, 0.0, "silicon"),
            ("generation_embedding_ar", 0.25, 0.0, "silicon"),
            ("generation_ar_1", 1.25, 0.0, "silicon"),
        ]

    def run_static_per_op(
        self, *, batch_size: int, isl: int, osl: int, mode: str = "static"
    ) -> tuple[Sequence[Operation], Sequence[Operation]]:
        """Return the operations of reading prompts, and none of generating."""
        self._need(self._attention in self.timed.attention, "context attention data missing")
        assert type(batch_size) is type(isl) is int
        assert (osl, mode) == (1, "static_ctx")
        attention = batch_size * isl / 500
        return [("context_qkv_gemm", 9.0, 0.0, ""), ("context_attention", attention, 0.0, "")], []

    @staticmethod
    def _need(known: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not known:
            raise MissingDataError(f"perf database error: {what} at /site/{what}\nsecond line")


def resolve_query_version(system: str, backend: str, version: str) -> str:
    """Return the release that the kernels are of."""
    assert (backend, version) == ("trtllm", "current")
    assert system in SYSTEMS
    return RELEASE


def install_package(patch: pytest.MonkeyPatch, timed: Timed | None = None) -> Timed:
    """Make the fake importable under the package's names."""
    EngineHandle.timed = timed or Timed()
    package, sdk = ModuleType("aiconfigurator_core"), ModuleType("aiconfigurator_core.sdk")
    database = ModuleType("aiconfigurator_core.sdk.perf_database")
    sdk.EngineHandle = EngineHandle  # type: ignore[attr-defined] # a module of a test
    database.resolve_query_version = resolve_query_version  # type: ignore[attr-defined] # same
    for module in (package, sdk, database):
        patch.setitem(sys.modules, module.__name__, module)
    patch.setattr("specdeploy.adapters.silicon.version", {"aiconfigurator-core": VERSION}.get)
    return EngineHandle.timed


def forbid_package(patch: pytest.MonkeyPatch) -> None:
    """Make the package not installed, whether or not it is."""
    for name in ("aiconfigurator_core", "aiconfigurator_core.sdk"):
        patch.setitem(sys.modules, name, None)
