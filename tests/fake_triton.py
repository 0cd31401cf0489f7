"""Triton's Python back-end without a server: enough of it to run the models' own files.

:class:`FakeTriton` stands in for the module ``triton_python_backend_utils`` and for the
server behind it: models that are loaded through it call each other, one after the other.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from specdeploy.adapters.triton_config import parse_model_config

Array = np.ndarray[Any, np.dtype[Any]]

_DTYPES = {
    "TYPE_BOOL": np.bool_,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_STRING": np.object_,
}


class Tensor:
    def __init__(self, name: str, array: Array) -> None:
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Array:
        return self._array


class TritonError(Exception):
    INTERNAL, INVALID_ARG, CANCELLED = "internal", "invalid", "cancelled"

    def __init__(self, message: str, code: str = INTERNAL) -> None:
        super().__init__(message)
        self.code = code

    def message(self) -> str:
        return str(self)


class InferenceResponse:
    def __init__(
        self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None
    ) -> None:
        self.outputs = {t.name(): t.as_numpy() for t in output_tensors}
        self._error = error

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


class Sender:
    """Collects the responses of one request, and says when the final one came."""

    def __init__(self, *, cancel_after: int | None = None) -> None:
        self.responses: list[InferenceResponse] = []
        self.finished = threading.Event()
        self._cancel_after = cancel_after

    def is_cancelled(self) -> bool:
        return self._cancel_after is not None and len(self.responses) >= self._cancel_after

    def send(self, response: InferenceResponse, flags: int = 0) -> None:
        assert not self.finished.is_set(), "a response after the final one"
        self.responses.append(response)
        if flags:
            self.finished.set()


class Request:
    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[str], sender: Sender) -> None:
        self._inputs, self._outputs, self._sender = inputs, outputs, sender

    def inputs(self) -> Sequence[Tensor]:
        return self._inputs

    def requested_output_names(self) -> Sequence[str]:
        return self._outputs

    def get_response_sender(self) -> Sender:
        return self._sender


class Metric:
    """A counter, or a histogram that keeps what it saw."""

    def __init__(self) -> None:
        self.value = 0.0
        self.seen: list[float] = []

    def increment(self, value: float) -> None:
        self.value += value

    def observe(self, value: float) -> None:
        self.seen.append(value)


class FakeTriton:
    """The back-end's module and a server of the models of one rendered repository."""

    TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1

    def __init__(self, repository: Mapping[str, str]) -> None:
        self.Tensor, self.TritonError = Tensor, TritonError
        self.InferenceResponse = InferenceResponse
        self._repository = repository
        self._models: dict[str, Any] = {}
        self.calls: list[tuple[str, dict[str, Array]]] = []
        self.replies: list[tuple[str, dict[str, Array]]] = []
        self.broken: dict[str, str] = {}
        self.answers: dict[str, dict[str, Array]] = {}
        self.metrics: dict[str, Metric] = {}
        self.InferenceRequest = self._make_request
        self.MetricFamily = _families(self.metrics)
        self.Logger = ModuleType("Logger")
        self.Logger.log_error = print  # type: ignore[attr-defined]

    def load(self, model: str, source: Path) -> None:
        """Load a model of the repository from its ``model.py``."""
        text = self._repository[f"{model}/config.pbtxt"]
        self._models[model] = load_model(self, source, model, text)

    def finalize(self, model: str) -> None:
        """Unload a model, which waits for what it still does."""
        self._models.pop(model).finalize()

    def ask(self, model: str, inputs: Mapping[str, Any], **sender: Any) -> Sender:  # noqa: ANN401
        """Ask a decoupled model and wait for its final response."""
        collector = Sender(**sender)
        self._models[model].execute([Request(self._tensors(model, inputs), (), collector)])
        assert collector.finished.wait(60), "no final response"
        return collector

    def call(
        self, model: str, inputs: Mapping[str, Any], outputs: Sequence[str]
    ) -> InferenceResponse:
        """Ask a model that answers once."""
        tensors = self._tensors(model, inputs)
        response: InferenceResponse = self._make_request(model, outputs, tensors).exec()
        return response

    def using_decoupled_model_transaction_policy(self, config: dict[str, Any]) -> bool:
        return bool(config["decoupled"])

    @staticmethod
    def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
        return Tensor(name, response.outputs[name]) if name in response.outputs else None

    def _tensors(self, model: str, inputs: Mapping[str, Any]) -> list[Tensor]:
        config = parse_model_config(self._repository[f"{model}/config.pbtxt"], f"{model}/config")
        from tritonclient.grpc.model_config_pb2 import DataType  # noqa: PLC0415

        types = {t.name: _DTYPES[DataType.Name(t.data_type)] for t in config.input}
        return [Tensor(name, as_array(value, types[name])) for name, value in inputs.items()]

    def _make_request(
        self, model_name: str, requested_output_names: Sequence[str], inputs: Sequence[Tensor]
    ) -> Any:  # noqa: ANN401
        def answer() -> InferenceResponse:
            arrays = {t.name(): np.array(t.as_numpy()) for t in inputs}
            self.calls.append((model_name, arrays))
            if model_name in self.broken:
                return InferenceResponse(error=TritonError(self.broken[model_name]))
            if model_name in self.answers:
                outputs = self.answers[model_name].items()
                return InferenceResponse([Tensor(name, array) for name, array in outputs])
            request = Request(inputs, requested_output_names, Sender())
            (response,) = self._models[model_name].execute([request])
            assert isinstance(response, InferenceResponse)
            self.replies.append((model_name, response.outputs))
            return response

        call = ModuleType("InferenceRequest")
        call.exec = answer  # type: ignore[attr-defined]
        return call


def load_model(triton: FakeTriton, source: Path, name: str, config: str) -> Any:  # noqa: ANN401
    """Import a ``model.py`` against the fake module and initialize its model."""
    sys.modules["triton_python_backend_utils"] = triton  # type: ignore[assignment]
    try:
        spec = importlib.util.spec_from_file_location(f"triton_model_{name}", source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        del sys.modules["triton_python_backend_utils"]
    model = module.TritonPythonModel()
    model.initialize({"model_config": _as_json(config, name), "model_name": name})
    return model


def as_array(value: object, dtype: Any) -> Array:  # noqa: ANN401 - a numpy type
    """Return a value in the shape of one request; arrays are taken as they are."""
    if isinstance(value, np.ndarray):
        return value
    values = value if isinstance(value, list) else [value]
    plain = [v.encode() if isinstance(v, str) else v for v in values]
    return np.array([plain], dtype=dtype)


def _as_json(text: str, name: str) -> str:
    import json  # noqa: PLC0415

    config = parse_model_config(text, f"{name}/config.pbtxt")
    parameters = {k: {"string_value": p.string_value} for k, p in config.parameters.items()}
    decoupled = config.model_transaction_policy.decoupled
    return json.dumps({"parameters": parameters, "decoupled": decoupled})


def _families(metrics: dict[str, Metric]) -> Callable[..., Any]:
    class Family:
        COUNTER, HISTOGRAM = "counter", "histogram"

        def __init__(self, *, name: str, description: str, kind: str) -> None:
            del description, kind
            self._name = name

        def Metric(self, **options: object) -> Metric:  # noqa: N802 - Triton's name
            del options
            return metrics.setdefault(self._name, Metric())

    return Family
