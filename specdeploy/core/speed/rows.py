"""Rows of measured serving, grouped into deployments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from pydantic import ConfigDict, Field

from specdeploy.core.hardware import find_gpu
from specdeploy.core.memory import GpuMemory, MemoryRequest, memory_grid
from specdeploy.core.models import ModelSpec
from specdeploy.core.record import Record
from specdeploy.core.served import ServedPair, serve_model
from specdeploy.core.speed.constants import DEFAULT
from specdeploy.core.speed.load import Load, as_array
from specdeploy.core.speed.measured import Measured
from specdeploy.core.speed.serving import Serving

# A server takes no more requests at once than this unless it is told to.
LARGEST_BATCH: Final = 2048


class MeasuredRow(Record):
    """One measurement, in the columns of AIConfigurator's measured rows; others are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, frozen=True)

    model_path: str = Field(description="Hub id or directory of the model.")
    system: str = Field(description="Name of the GPU; h100_sxm is h100-sxm.")
    precision: str = Field(default="bf16", description="Of the weights; fp4 is nvfp4.")
    kv_dtype: str = Field(default="auto", description="auto: fp8 where the weights are quantized.")
    tp_size: int = Field(default=1, ge=1)
    pp_size: int = Field(default=1, ge=1)
    attention_dp_size: int = Field(default=1, ge=0)
    isl: int = Field(ge=1, description="Prompt tokens.")
    osl: int = Field(ge=2, description="Generated tokens.")
    batch_size: int = Field(ge=1, description="Concurrent clients.")
    equal_lengths: bool = Field(
        default=True, description="Whether every request has these lengths; else they are means."
    )
    batch_wait_iters: int = Field(
        default=0, ge=0, description="The server's batch_wait_timeout_iters."
    )
    silicon_ttft_ms: float | None = Field(default=None, gt=0)
    silicon_tpot_ms: float = Field(gt=0)

    @property
    def deployment(self) -> tuple[str, str, str, int]:
        """Model, GPU, precision and parallelism."""
        return (self.model_path, self.system, self.precision, self.tp_size)

    @property
    def outside(self) -> str | None:
        """What the model of speed does not cover, if anything."""
        if self.pp_size > 1:
            return "pipeline parallelism"
        if self.attention_dp_size > 1:
            return "attention data parallelism"
        return None


def deployments(
    rows: Sequence[MeasuredRow], specs: Mapping[str, ModelSpec]
) -> dict[tuple[str, str, str, int], Measured]:
    """Return the points of each deployment, in order of model, GPU, precision and tp.

    Args:
        rows: None of them ``outside``.
        specs: The model of every ``model_path``.

    Raises:
        ConfigError: a GPU or precision is not known, or the heads cannot be spread so.
    """
    ordered = sorted(rows, key=lambda row: row.deployment)
    return {
        key: _measured(list(group), specs[key[0]])
        for key, group in groupby(ordered, key=lambda row: row.deployment)
    }


def _measured(rows: list[MeasuredRow], spec: ModelSpec) -> Measured:
    first = rows[0]
    gpu = find_gpu(first.system)
    quantized = first.precision not in {"bf16", "fp16", "fp32"}
    kv_dtype = "fp8" if first.kv_dtype == "auto" and quantized else first.kv_dtype
    model = serve_model(spec, precision=first.precision, kv_dtype=kv_dtype, tp=first.tp_size)
    pair = ServedPair(model)
    batch, prompt, output = (
        as_array([getattr(row, name) for row in rows]) for name in ("batch_size", "isl", "osl")
    )
    whole = (prompt + output).astype(np.int64)
    memory = memory_grid(
        MemoryRequest(pair=pair, gpu=GpuMemory.of(gpu), max_seq_len=int(whole.max())),
        batch=np.minimum(batch, LARGEST_BATCH).astype(np.int64),
        max_seq_len=whole,
    )
    resident = np.maximum(memory.max_resident, 1)
    return Measured(
        Serving.of(pair, gpu, DEFAULT),
        Load(
            batch,
            prompt,
            output,
            resident=resident,
            equal_lengths=as_array([row.equal_lengths for row in rows]),
            batch_wait_iters=as_array([row.batch_wait_iters for row in rows]),
        ),
        ttft_ms=as_array([row.silicon_ttft_ms or np.nan for row in rows]),
        tpot_ms=as_array([row.silicon_tpot_ms for row in rows]),
        draft_length=np.zeros(len(rows)),
        tokens_per_step=np.ones(len(rows)),
    )


def empty_cells_out(row: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of a CSV row that say something; the defaults stand for the others."""
    return {name: cell.strip() for name, cell in row.items() if cell and cell.strip()}
