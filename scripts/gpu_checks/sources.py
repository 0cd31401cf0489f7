"""What nvidia-smi and PyTorch say about the GPUs, as a second opinion on our own reading."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Final

from specdeploy.units import MIB

SMI_FIELDS: Final = (
    *("index", "uuid", "name", "memory.total", "memory.free", "memory.used", "compute_cap"),
    *("driver_version", "pci.bus_id", "power.limit", "pcie.link.gen.current", "compute_mode"),
)
PATIENCE_S: Final = 120

# Run apart: a CUDA context holds some hundred MiB of the memory that is compared.
_TORCH: Final = """
import json, torch
def told(index):
    facts = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    return {"uuid": f"GPU-{facts.uuid}", "name": facts.name, "sm": 10 * facts.major + facts.minor,
            "free": free, "total": total}
print(json.dumps([told(index) for index in range(torch.cuda.device_count())]))
"""


class AbsentError(Exception):
    """A second opinion cannot be had; says why."""


def ask_nvidia_smi() -> dict[str, dict[str, str | None]]:
    """Return the fields of each GPU by its UUID; None is what nvidia-smi does not tell.

    Raises:
        AbsentError: it is not there, or fails.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        raise AbsentError("nvidia-smi is not on PATH")
    query = f"--query-gpu={','.join(SMI_FIELDS)}"
    text = _output([program, query, "--format=csv,noheader,nounits"])
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line]
    told = [dict(zip(SMI_FIELDS, map(_known, row), strict=True)) for row in rows]
    return {str(row["uuid"]): row for row in told}


def ask_torch() -> list[dict[str, int | str]]:
    """Return what CUDA shows a new process, in its order.

    Raises:
        AbsentError: there is no PyTorch with CUDA, or it fails.
    """
    try:
        installed = metadata.version("torch")
    except metadata.PackageNotFoundError as error:
        raise AbsentError("torch is not installed") from error
    if installed.endswith("+cpu"):
        raise AbsentError(f"torch {installed} is built without CUDA")
    told: list[dict[str, int | str]] = json.loads(_output([sys.executable, "-c", _TORCH]))
    return told


def bytes_of(row: Mapping[str, str | None], field: str) -> int | None:
    """Return a field that nvidia-smi tells in MiB."""
    text = row[field]
    return None if text is None else int(float(text) * MIB)


def _known(cell: str) -> str | None:
    # In brackets: not supported, not available, unknown error.
    return None if cell.startswith("[") or cell == "N/A" else cell


def _output(argv: list[str]) -> str:
    try:
        finished = subprocess.run(
            argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AbsentError(f"{argv[0]} does not answer") from error
    if finished.returncode:
        last = (finished.stdout + finished.stderr).strip().splitlines()[-1:]
        raise AbsentError(f"{argv[0]} fails: {' '.join(last)}")
    return finished.stdout
