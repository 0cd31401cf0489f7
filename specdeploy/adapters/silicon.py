"""Tables of step times from the kernel measurements of the package aiconfigurator-core.

Only its operator tables are asked, through its public ``sdk.EngineHandle``; the rows of measured
servers that it also carries are not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, final

import numpy as np

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.served import ServedModel
from specdeploy.core.speed.load import Array, as_array
from specdeploy.core.speed.measured_table import Curve, MeasuredTable, NotMeasured, Surface
from specdeploy.errors import MissingToolError

if TYPE_CHECKING:
    from aiconfigurator_core.sdk import EngineHandle

PACKAGE: Final = "aiconfigurator-core"
_BACKEND: Final = "trtllm"
_BLACKWELL: Final = 100
# Our GPUs -> the package's systems that have TensorRT-LLM kernels.
_SYSTEMS: Final = {
    "a100-80gb-sxm": "a100_sxm",
    "l40s": "l40s",
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "gb200": "gb200",
    "b300-sxm": "b300_sxm",
    "rtx-pro-6000": "rtx_pro_6000_server",
}
# Our precisions -> the package's modes of matrix products and of experts, None where it has none.
_WEIGHT_MODES: Final[Mapping[str, tuple[str, str | None]]] = {
    "bf16": ("bfloat16", "bfloat16"),
    "fp16": ("bfloat16", "bfloat16"),
    "fp8": ("fp8_static", "fp8"),
    "int8_wo": ("int8_wo", None),
    "int4_wo": ("int4_wo", "int4_wo"),
    "int4_awq": ("int4_wo", "int4_wo"),
    "nvfp4": ("nvfp4", "nvfp4"),
}
_CACHE_MODES: Final = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "int8": "int8"}
_MXFP4: Final = "mxfp4"
_MXFP4_ON_BLACKWELL: Final = "w4a8_mxfp4_mxfp8"

Kind = Literal["products", "attention", "layers", "all_reduce", "lm_head"]
# Part of an operation's name -> what it is; the first that fits.
_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("attention", "attention"),
    ("mla_block", "attention"),
    ("logits", "lm_head"),
    ("_ar", "all_reduce"),
    ("dispatch", "all_reduce"),
    ("p2p", "all_reduce"),
    ("norm", "layers"),
    ("act_gate", "layers"),
    ("embedding", "layers"),
)
_SMALLEST_CONTEXT: Final = 2
_LARGEST_CONTEXT: Final = 131072
_LARGEST_BATCH: Final = 1024
_LARGEST_PASS: Final = 16384
_SMALLEST_PROMPT: Final = 16
_MOST_PROMPTS: Final = 64


@final
class SiliconTables:
    """Makes tables from the installed package."""

    def table(
        self, model: ServedModel, gpu: GpuSpec, *, checkpoint: Path
    ) -> MeasuredTable | NotMeasured:
        """Return what the kernels of ``model`` take on ``gpu``, or why that is not known.

        Args:
            model: The model as it is served.
            gpu: What each of its GPUs is.
            checkpoint: The model's directory; its config.json is read by the package.

        Raises:
            MissingToolError: the package is not installed.
        """
        handle = _installed()
        system = _SYSTEMS.get(gpu.name)
        if system is None:
            return NotMeasured(f"no kernels were timed on {gpu.name}")
        found = NotMeasured(
            f"no kernels were timed in {model.precision.name} with a {model.kv_dtype} cache"
        )
        for modes in _candidates(model, gpu):
            tried = _try(handle, (str(checkpoint), system), modes)
            if isinstance(tried, MeasuredTable):
                return tried
            found = tried
        return found


def _installed() -> type[EngineHandle]:
    # An optional package, and slow to import.
    try:
        from aiconfigurator_core.sdk import EngineHandle  # noqa: PLC0415
    except ImportError as error:
        raise MissingToolError(
            f"the kernel tables of {PACKAGE} are not installed",
            hint="pip install 'specdeploy[silicon]' (Linux on x86-64, Python 3.11 to 3.13), "
            "or use --source physics",
        ) from error
    # It warns of what it then decides itself.
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    handle: type[EngineHandle] = EngineHandle
    return handle


def _try(
    handle: type[EngineHandle], where: tuple[str, str], modes: Mapping[str, str | int]
) -> MeasuredTable | NotMeasured:
    checkpoint, system = where
    try:
        engine = handle.compile(checkpoint, system, _BACKEND, **modes)
        return _table_of(engine, origin=_origin(system))
    except Exception as error:  # noqa: BLE001 - of any kind: what it does not know or has not timed
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # Where the package's files lie helps nobody.
        return NotMeasured(f"{lines[0].partition(' at /')[0]:.200}")


def _origin(system: str) -> str:
    from aiconfigurator_core.sdk.perf_database import resolve_query_version  # noqa: PLC0415

    release = resolve_query_version(system, _BACKEND, "current")
    return f"TensorRT-LLM {release} on {system} ({PACKAGE} {version(PACKAGE)})"


def _candidates(model: ServedModel, gpu: GpuSpec) -> Iterator[dict[str, str | int]]:
    """Yield the package's modes to look for, the likeliest first.

    Experts are cut over the GPUs, or spread whole where only that was timed; prompts attend in
    the type of the cache, or in 16 bit where only that was timed.
    """
    cache = _CACHE_MODES.get(model.kv_dtype)
    weights = _weight_modes(model, gpu)
    if cache is None or weights is None:
        return
    attention = dict.fromkeys((cache if cache == "fp8" else "bfloat16", "bfloat16"))
    for (cut, spread), context in product(_layouts(model), attention):
        yield {
            **weights,
            "kvcache_quant_mode": cache,
            "fmha_quant_mode": context,
            "tp_size": model.tp,
            "moe_tp_size": cut,
            "moe_ep_size": spread,
        }


def _layouts(model: ServedModel) -> Iterable[tuple[int, int]]:
    return dict.fromkeys([(model.tp, 1), (1, model.tp)]) if _is_routed(model) else [(1, 1)]


def _is_routed(model: ServedModel) -> bool:
    parts = model.spec.breakdown
    return parts is not None and parts.experts > 0


def _weight_modes(model: ServedModel, gpu: GpuSpec) -> dict[str, str] | None:
    """Return the modes of the weights; those of a quantized checkpoint the package reads itself."""
    stored, name = model.spec.quantization, model.precision.name
    if stored is not None and stored.method == name:
        blackwell = name == _MXFP4 and gpu.sm >= _BLACKWELL
        return {"moe_quant_mode": _MXFP4_ON_BLACKWELL} if blackwell else {}
    products, experts = _WEIGHT_MODES.get(name, (None, None))
    if products is None:
        return None
    if not _is_routed(model):
        return {"gemm_quant_mode": products}
    return None if experts is None else {"gemm_quant_mode": products, "moe_quant_mode": experts}


def _table_of(engine: EngineHandle, *, origin: str) -> MeasuredTable:
    passes = _steps(1, _LARGEST_PASS, per_octave=4)
    shared = [_by_kind(engine.decode_step_per_op(tokens, 1, 2)) for tokens in passes]

    def curve(kind: Kind) -> Curve:
        return Curve(as_array(passes), as_array([seconds[kind] for seconds in shared]))

    return MeasuredTable(
        origin=origin,
        products=curve("products"),
        layers=curve("layers"),
        all_reduce=curve("all_reduce"),
        lm_head=curve("lm_head"),
        decode=_surface(
            # The package counts the new token itself.
            lambda many, context: engine.decode_step_per_op(many, context - 1, 2),
            _steps(1, _LARGEST_BATCH, per_octave=2),
            _steps(_SMALLEST_CONTEXT, _LARGEST_CONTEXT, per_octave=2),
        ),
        prompt=_surface(
            lambda many, tokens: engine.run_static_per_op(
                batch_size=many, isl=tokens, osl=1, mode="static_ctx"
            )[0],
            _steps(1, _MOST_PROMPTS, per_octave=1),
            _steps(_SMALLEST_PROMPT, _LARGEST_CONTEXT, per_octave=2),
        ),
    )


Operation = tuple[str, float, float, str]


def _surface(
    operations: Callable[[int, int], Iterable[Operation]], rows: list[int], columns: list[int]
) -> Surface:
    seconds: list[list[float]] = [
        [_by_kind(operations(row, column))["attention"] for column in columns] for row in rows
    ]
    return Surface(as_array(rows), as_array(columns), as_array(seconds))


def _by_kind(operations: Iterable[Operation]) -> Mapping[Kind, float]:
    """Return seconds by kind of kernel of operations that are given in milliseconds."""
    seconds: dict[Kind, float] = dict.fromkeys(
        ("products", "attention", "layers", "all_reduce", "lm_head"), 0.0
    )
    for name, milliseconds, _, _ in operations:
        seconds[_kind_of(name)] += milliseconds / 1e3
    return seconds


def _kind_of(name: str) -> Kind:
    return next((kind for part, kind in _KINDS if part in name), "products")


def _steps(first: int, last: int, *, per_octave: int) -> list[int]:
    """Return whole numbers from ``first`` to ``last``, so many to each doubling."""
    octaves = np.log2(last / first)
    exact: Array = first * 2.0 ** (np.arange(round(octaves * per_octave) + 1) / per_octave)
    return sorted({int(size) for size in np.rint(exact)})
