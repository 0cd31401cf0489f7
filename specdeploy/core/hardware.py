"""Known GPUs. Memory is what the driver reports, in MiB; an SM is the compute capability x 10."""

from __future__ import annotations

import difflib
import re
from typing import Final

from pydantic import Field

from specdeploy.core.record import Record
from specdeploy.errors import ConfigError


class GpuRates(Record):
    """Peak rates of one GPU as its datasheet states them, without structured sparsity.

    A rate of 0 means that the card has no such unit.
    """

    bandwidth_gb_s: float = Field(gt=0, description="Memory bandwidth, 10^9 bytes per second.")
    half_tflops: float = Field(ge=0, description="BF16 with FP32 sums (FP16 before SM 80).")
    fp8_tflops: float = Field(default=0, ge=0)
    int8_tops: float = Field(default=0, ge=0)
    fp4_tflops: float = Field(default=0, ge=0)
    nvlink_gb_s: float = Field(
        default=0, ge=0, description="Both directions together; 0: PCIe only."
    )


class GpuSpec(Record):
    """One GPU variant."""

    name: str = Field(description="The word the user writes, such as h100-sxm.")
    product: str = Field(description="Name that the driver reports.")
    memory_mib: int = Field(gt=0)
    sm: int = Field(description="80 is Ampere, 89 Ada, 90 Hopper, 100 and 120 Blackwell.")
    aliases: list[str] = []
    rates: GpuRates | None = Field(default=None, description="None: a card not in the table.")


def _gpu(
    name: str, product: str, memory_and_sm: tuple[int, int], aliases: str, rates: tuple[float, ...]
) -> GpuSpec:
    fields = dict(zip(GpuRates.model_fields, rates, strict=True))
    return GpuSpec(
        name=name,
        product=product,
        memory_mib=memory_and_sm[0],
        sm=memory_and_sm[1],
        aliases=aliases.split("|") if aliases else [],
        rates=GpuRates.model_validate(fields),
    )


# Rates: bandwidth, BF16, FP8, INT8, FP4, NVLink, in the order of GpuRates.
GPUS: Final = (
    _gpu("t4", "Tesla T4", (15360, 75), "", (320, 65, 0, 130, 0, 0)),
    _gpu("v100-16gb", "Tesla V100-SXM2-16GB", (16384, 70), "", (900, 125, 0, 0, 0, 300)),
    _gpu("v100-32gb", "Tesla V100-SXM2-32GB", (32768, 70), "v100", (900, 125, 0, 0, 0, 300)),
    _gpu("a10", "NVIDIA A10", (23028, 86), "", (600, 125, 0, 250, 0, 0)),
    _gpu("a10g", "NVIDIA A10G", (23028, 86), "", (600, 70, 0, 140, 0, 0)),
    _gpu("a30", "NVIDIA A30", (24576, 80), "", (933, 165, 0, 330, 0, 200)),
    _gpu("a100-40gb-pcie", "NVIDIA A100-PCIE-40GB", (40960, 80), "", (1555, 312, 0, 624, 0, 600)),
    _gpu(
        "a100-40gb-sxm",
        "NVIDIA A100-SXM4-40GB",
        (40960, 80),
        "a100-40gb",
        (1555, 312, 0, 624, 0, 600),
    ),
    _gpu("a100-80gb-pcie", "NVIDIA A100 80GB PCIe", (81920, 80), "", (1935, 312, 0, 624, 0, 600)),
    _gpu(
        "a100-80gb-sxm",
        "NVIDIA A100-SXM4-80GB",
        (81920, 80),
        "a100|a100-80gb",
        (2039, 312, 0, 624, 0, 600),
    ),
    _gpu("l4", "NVIDIA L4", (23034, 89), "", (300, 121, 242, 242, 0, 0)),
    _gpu("l40s", "NVIDIA L40S", (46068, 89), "", (864, 362, 733, 733, 0, 0)),
    _gpu(
        "rtx-6000-ada",
        "NVIDIA RTX 6000 Ada Generation",
        (49140, 89),
        "",
        (960, 364, 728, 728, 0, 0),
    ),
    _gpu("h100-pcie", "NVIDIA H100 PCIe", (81559, 90), "", (2000, 756, 1513, 1513, 0, 600)),
    _gpu(
        "h100-sxm",
        "NVIDIA H100 80GB HBM3",
        (81559, 90),
        "h100|h100-80gb",
        (3350, 989, 1979, 1979, 0, 900),
    ),
    _gpu("h100-nvl", "NVIDIA H100 NVL", (95830, 90), "", (3900, 835, 1671, 1671, 0, 600)),
    _gpu("h200-sxm", "NVIDIA H200", (143771, 90), "h200", (4800, 989, 1979, 1979, 0, 900)),
    _gpu("gh200", "NVIDIA GH200 480GB", (97871, 90), "", (4000, 989, 1979, 1979, 0, 900)),
    _gpu("b200-sxm", "NVIDIA B200", (183359, 100), "b200", (8000, 2250, 4500, 4500, 9000, 1800)),
    _gpu("gb200", "NVIDIA GB200", (189471, 100), "", (8000, 2500, 5000, 5000, 10000, 1800)),
    _gpu(
        "b300-sxm", "NVIDIA B300 SXM6 AC", (275040, 103), "b300", (8000, 2250, 4500, 0, 13500, 1800)
    ),
    _gpu("rtx-4090", "NVIDIA GeForce RTX 4090", (24564, 89), "", (1008, 165, 330, 661, 0, 0)),
    _gpu("rtx-5090", "NVIDIA GeForce RTX 5090", (32607, 120), "", (1792, 210, 419, 838, 1676, 0)),
    _gpu(
        "rtx-pro-6000-workstation",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        (97887, 120),
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        (1792, 504, 1008, 1008, 2015, 0),
    ),
    _gpu(
        "rtx-pro-6000",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        (97887, 120),
        "rtx-pro-6000-server",
        (1597, 504, 1000, 1000, 2000, 0),
    ),
)


def find_gpu(name: str) -> GpuSpec:
    """Return the GPU called ``name``: its word, an alias, the driver's name or ``custom:MIB:SM``.

    Raises:
        ConfigError: no GPU of the table has that name.
    """
    if name.lower().startswith("custom:"):
        return _custom(name)
    table = {_plain(word): gpu for gpu in GPUS for word in (gpu.name, gpu.product, *gpu.aliases)}
    gpu = table.get(_plain(name))
    if gpu is None:
        near = difflib.get_close_matches(_plain(name), table, n=1, cutoff=0.5)
        known = f"did you mean {table[near[0]].name}? " if near else ""
        raise ConfigError(
            f"unknown GPU {name!r}",
            hint=f"{known}known: {', '.join(gpu.name for gpu in GPUS)}; "
            "or custom:MIB:SM, such as custom:81559:9.0",
        )
    return gpu


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower()).removeprefix("nvidia-")


def _custom(name: str) -> GpuSpec:
    match = re.fullmatch(r"custom:([1-9]\d{0,8}):(\d{1,2})\.?(\d)", name.lower())
    if match is None:
        raise ConfigError(
            f"cannot read GPU {name!r}",
            hint="write custom:MIB:SM, memory in MiB and compute capability: custom:81559:9.0",
        )
    memory, major, minor = (int(group) for group in match.groups())
    return GpuSpec(name=name, product="custom", memory_mib=memory, sm=10 * major + minor)
