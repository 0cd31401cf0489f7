"""What a tool printed last is read for failures that are known."""

from __future__ import annotations

import pytest

from specdeploy.core.command_failures import recognise_failure

KNOWN = [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.5 GiB", "gpu-memory"),
    ("[10/11/2025-10:00:00] [TRT] [E] Error Code 2: OutOfMemory (no further info)", "gpu-memory"),
    ("[TensorRT-LLM][E] CUDA error: out of memory", "gpu-memory"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "host-memory"),
    ("OSError: [Errno 12] Cannot allocate memory", "host-memory"),
    ("OSError: [Errno 28] No space left on device", "space"),
    ("RuntimeError: CUDA error: no kernel image is available for execution", "architecture"),
    ("RuntimeError: Unsupported SM 75", "architecture"),
    ("Error Code 1: Serialization failed (Version tag does not match.)", "version"),
    ("trtllm-build: error: unrecognized arguments: --max_output_len 8", "version"),
    ("quantize.py: error: argument --qformat: invalid choice: 'nvfp4'", "version"),
    ("error while loading shared libraries: libnvinfer.so.10: cannot open", "library"),
    ("ModuleNotFoundError: No module named 'modelopt'", "library"),
    ("python3: can't open file '/x/convert_checkpoint.py': [Errno 2] No such file", "script"),
    ("Killed", "killed"),
    ("/bin/sh: line 1:   123 Killed                  trtllm-build", "killed"),
]


def kind(output: str, status: int = 1) -> str | None:
    failure = recognise_failure(output, status)
    return failure.kind if failure else None


@pytest.mark.parametrize(("line", "expected"), KNOWN)
def test_a_known_failure_is_recognised_in_the_middle_of_a_log(line: str, expected: str) -> None:
    assert kind(f"reading weights\n{line}\nfor details see the documentation\n") == expected


@pytest.mark.parametrize("status", [-9, 137])
def test_a_kill_is_known_by_the_status_alone(status: int) -> None:
    assert kind("half a line", status) == "killed"


@pytest.mark.parametrize(
    "line",
    [
        "[TRT] [W] Tactic device request: 4000MB, CUDA out of memory, skipping the tactic",
        "UserWarning: no kernel image is available for this optional extension",
        "everything is well",
    ],
)
def test_warnings_are_no_failures(line: str) -> None:
    assert kind(line) is None


def test_the_last_failure_of_a_log_is_the_one_that_ended_it() -> None:
    lines = ["ImportError: an optional module", "torch.OutOfMemoryError: CUDA out of memory"]
    assert kind("\n".join(lines)) == "gpu-memory"
    assert kind("\n".join(reversed(lines))) == "library"
