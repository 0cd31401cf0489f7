"""Known GPUs. Memory is what the driver reports, in MiB; an SM is the compute capability x 10."""

from __future__ import annotations

import difflib
import re
from typing import Final

from pydantic import Field

from specdeploy.core.record import Record
from specdeploy.errors import ConfigError


class GpuSpec(Record):
    """One GPU variant."""

    name: str = Field(description="The word the user writes, such as h100-sxm.")
    product: str = Field(description="Name that the driver reports.")
    memory_mib: int = Field(gt=0)
    sm: int = Field(description="80 is Ampere, 89 Ada, 90 Hopper, 100 and 120 Blackwell.")
    aliases: list[str] = []


def _gpu(name: str, product: str, memory_mib: int, sm: int, *aliases: str) -> GpuSpec:
    return GpuSpec(name=name, product=product, memory_mib=memory_mib, sm=sm, aliases=list(aliases))


GPUS: Final = (
    _gpu("t4", "Tesla T4", 15360, 75),
    _gpu("v100-16gb", "Tesla V100-SXM2-16GB", 16384, 70),
    _gpu("v100-32gb", "Tesla V100-SXM2-32GB", 32768, 70, "v100"),
    _gpu("a10", "NVIDIA A10", 23028, 86),
    _gpu("a10g", "NVIDIA A10G", 23028, 86),
    _gpu("a30", "NVIDIA A30", 24576, 80),
    _gpu("a100-40gb-pcie", "NVIDIA A100-PCIE-40GB", 40960, 80),
    _gpu("a100-40gb-sxm", "NVIDIA A100-SXM4-40GB", 40960, 80, "a100-40gb"),
    _gpu("a100-80gb-pcie", "NVIDIA A100 80GB PCIe", 81920, 80),
    _gpu("a100-80gb-sxm", "NVIDIA A100-SXM4-80GB", 81920, 80, "a100", "a100-80gb"),
    _gpu("l4", "NVIDIA L4", 23034, 89),
    _gpu("l40s", "NVIDIA L40S", 46068, 89),
    _gpu("rtx-6000-ada", "NVIDIA RTX 6000 Ada Generation", 49140, 89),
    _gpu("h100-pcie", "NVIDIA H100 PCIe", 81559, 90),
    _gpu("h100-sxm", "NVIDIA H100 80GB HBM3", 81559, 90, "h100", "h100-80gb"),
    _gpu("h100-nvl", "NVIDIA H100 NVL", 95830, 90),
    _gpu("h200-sxm", "NVIDIA H200", 143771, 90, "h200"),
    _gpu("gh200", "NVIDIA GH200 480GB", 97871, 90),
    _gpu("b200-sxm", "NVIDIA B200", 183359, 100, "b200"),
    _gpu("gb200", "NVIDIA GB200", 189471, 100),
    _gpu("b300-sxm", "NVIDIA B300 SXM6 AC", 275040, 103, "b300"),
    _gpu("rtx-4090", "NVIDIA GeForce RTX 4090", 24564, 89),
    _gpu("rtx-5090", "NVIDIA GeForce RTX 5090", 32607, 120),
    _gpu(
        "rtx-pro-6000-workstation",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        97887,
        120,
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    ),
    _gpu(
        "rtx-pro-6000",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        97887,
        120,
        "rtx-pro-6000-server",
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
