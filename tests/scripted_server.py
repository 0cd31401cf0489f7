"""A gRPC server in this process that answers as a script says, for tests of the client."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from specdeploy.core.tensor_bytes import TensorValue, encode_tensor

Response: TypeAlias = service_pb2.ModelStreamInferResponse
Step: TypeAlias = Response | Callable[[grpc.ServicerContext], object]

ENGINE_INPUTS = {
    "text_input": "STRING",
    "max_tokens": "INT32",
    "stream": "BOOL",
    "num_draft_tokens": "INT32",
    "temperature": "FP32",
    "random_seed": "UINT64",
    "stop_words": "STRING",
}
LLMAPI_INPUTS = {
    "text_input": "STRING",
    "streaming": "BOOL",
    "sampling_param_max_tokens": "INT32",
    "sampling_param_temperature": "FP32",
    "sampling_param_return_perf_metrics": "BOOL",
}
COUNT_OUTPUTS = ("total_accepted_draft_tokens", "total_draft_tokens", "num_spec_steps")
OUTPUTS = ("text_output", *COUNT_OUTPUTS, "num_output_tokens")


@dataclass
class Script(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """What the server serves, and the steps of its every stream.

    Attributes:
        steps: Responses to send and functions to call, in order; then the stream ends.
        model: The name of the one model.
        inputs: Its inputs, with the types of config.pbtxt.
        requests: The requests that were received.
        cancelled: Set once a client cancels a stream.
    """

    steps: Sequence[Step] = ()
    model: str = "speculative"
    inputs: dict[str, str] = field(default_factory=lambda: dict(ENGINE_INPUTS))
    outputs: Sequence[str] = OUTPUTS
    requests: list[service_pb2.ModelInferRequest] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def ServerReady(self, request: object, context: object) -> object:  # noqa: N802 - gRPC's
        del request, context
        return service_pb2.ServerReadyResponse(ready=True)

    def ServerMetadata(self, request: object, context: object) -> object:  # noqa: N802
        del request, context
        return service_pb2.ServerMetadataResponse(name="scripted", version="0")

    def RepositoryIndex(self, request: object, context: object) -> object:  # noqa: N802
        del request, context
        index = service_pb2.RepositoryIndexResponse()
        index.models.add(name=self.model, state="READY")
        return index

    def ModelConfig(  # noqa: N802
        self, request: service_pb2.ModelConfigRequest, context: grpc.ServicerContext
    ) -> object:
        if request.name != self.model:
            context.abort(grpc.StatusCode.NOT_FOUND, f"'{request.name}' is not found")
        config = model_config_pb2.ModelConfig(name=self.model)
        for name, kind in self.inputs.items():
            config.input.add(name=name, data_type=f"TYPE_{kind}")
        for name in self.outputs:
            config.output.add(name=name)
        return service_pb2.ModelConfigResponse(config=config)

    def ModelStreamInfer(  # noqa: N802
        self, requests: Iterator[service_pb2.ModelInferRequest], context: grpc.ServicerContext
    ) -> Iterator[Response]:
        self.requests.append(next(requests))
        context.add_callback(lambda: None if context.code() else self.cancelled.set())
        for step in self.steps:
            if callable(step):
                step(context)
            else:
                yield step


def response(
    text: str | bytes | None = None,
    *,
    final: bool = False,
    counts: Mapping[str, TensorValue] | None = None,
    datatype: str = "INT32",
) -> Response:
    """Return a response with ``text`` (None: without any output)."""
    answer = Response()
    answer.infer_response.parameters["triton_final_response"].bool_param = final
    if text is not None:
        raw = text.encode() if isinstance(text, str) else text
        _add(answer, "text_output", "BYTES", raw)
    for name, value in (counts or {}).items():
        _add(answer, name, datatype, value)
    return answer


def failure(message: str) -> Response:
    """Return a response that is an error of the model."""
    return Response(error_message=message)


def until_cancelled(script: Script) -> Step:
    """Return a step that lasts until a client cancels a stream of ``script``."""

    def wait(context: object) -> None:
        del context
        assert script.cancelled.wait(10), "never cancelled"

    return wait


def _add(answer: Response, name: str, datatype: str, value: TensorValue) -> None:
    answer.infer_response.outputs.add(name=name, datatype=datatype, shape=[1])
    answer.infer_response.raw_output_contents.append(encode_tensor(datatype, [value]))


@contextlib.contextmanager
def scripted_server(script: Script) -> Iterator[str]:
    """Serve ``script`` on a free port and give its address."""
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(script, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()
