"""Small stand-ins for Triton's Python module, for tests of model.py files in process."""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

FINAL = 1


class Metric:
    """Keeps its values and notices when two threads publish at a time, in any metric."""

    overlapped = False
    _busy = threading.Lock()

    def __init__(self, labels: dict[str, str], buckets: list[float] | None = None) -> None:
        self.labels, self.buckets = labels, buckets
        self.values: list[float] = []

    def increment(self, value: float) -> None:
        if not Metric._busy.acquire(blocking=False):
            Metric.overlapped = True
            return
        time.sleep(0)
        self.values.append(value)
        Metric._busy.release()

    def observe(self, value: float) -> None:
        self.increment(value)


class MetricFamily:
    """Stands for ``pb_utils.MetricFamily`` and keeps what was made."""

    COUNTER, HISTOGRAM = "counter", "histogram"
    made: dict[str, MetricFamily]

    def __init__(self, name: str, description: str, kind: str) -> None:
        self.description, self.kind = description, kind
        MetricFamily.made[name] = self

    def Metric(  # noqa: N802 - Triton's name
        self, labels: dict[str, str], buckets: list[float] | None = None
    ) -> Metric:
        self.metric = Metric(labels, buckets)
        return self.metric


class Tensor:
    def __init__(self, name: str, array: object) -> None:
        self.name, self.array = name, np.asarray(array)

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self.array


class InferenceResponse:
    def __init__(
        self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None
    ) -> None:
        self.outputs = {tensor.name: tensor.array.tolist() for tensor in output_tensors}
        self.error = error


class TritonError(Exception):
    INVALID_ARG, INTERNAL = "invalid", "internal"

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Sender:
    """Keeps what was sent and tells when the final response was."""

    def __init__(self) -> None:
        self.sent: list[InferenceResponse] = []
        self.done = threading.Event()
        self.cancelled = False
        self.questions = self.late_questions = 0

    def send(self, response: InferenceResponse, flags: int) -> None:
        self.sent.append(response)
        if flags == FINAL:
            self.done.set()

    def is_cancelled(self) -> bool:
        self.questions += 1
        self.late_questions += self.done.is_set()
        return self.cancelled


class Request:
    def __init__(self, request_id: str = "", **inputs: object) -> None:
        self.inputs = {name: Tensor(name, value) for name, value in inputs.items()}
        self.sender = Sender()
        self._request_id = request_id

    def request_id(self) -> str:
        return self._request_id

    def get_response_sender(self) -> Sender:
        return self.sender


def pb_utils() -> types.ModuleType:
    module = types.ModuleType("triton_python_backend_utils")
    MetricFamily.made = {}
    vars(module).update(
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=FINAL,
        Tensor=Tensor,
        InferenceResponse=InferenceResponse,
        TritonError=TritonError,
        MetricFamily=MetricFamily,
        Logger=types.SimpleNamespace(log_error=lambda message: None),  # noqa: ARG005
        get_input_tensor_by_name=lambda request, name: request.inputs.get(name),
    )
    return module
