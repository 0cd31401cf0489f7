"""Talks to Triton over gRPC; every call has a deadline that gRPC itself enforces.

The generated stubs are used directly: a request is one stream of its own, whose deadline
and cancellation are then those of the request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias, final

from specdeploy.core.generation import GenerationOptions
from specdeploy.core.reply import Reply
from specdeploy.core.serving import ModelStatus, ServerHealth
from specdeploy.core.tensor_bytes import TensorValue, decode_tensor, encode_tensor
from specdeploy.core.wire import (
    ModelInterface,
    Tensor,
    UnsupportedOptionError,
    read_counts,
    read_text,
    request_tensors,
    requested_outputs,
)
from specdeploy.errors import ConfigError, ServerError

if TYPE_CHECKING:
    import grpc
    from tritonclient.grpc import service_pb2

Replies: TypeAlias = Generator[Reply, None, None]
AsyncReplies: TypeAlias = AsyncGenerator[Reply, None]

# tritonserver 2.51 loses track of a request whose stream is cancelled in the moment it ends:
# its model can then not be unloaded, and the server not be stopped in order. So a stream
# that has said its last is given this long to close by itself.
_END_GRACE_S: Final = 0.5
_FINAL: Final = "triton_final_response"
_TYPE_PREFIX: Final = "TYPE_"


@final
class TritonConnection:
    """A blocking connection to one server."""

    def __init__(self, url: str) -> None:
        import grpc  # noqa: PLC0415
        from tritonclient.grpc import service_pb2_grpc  # noqa: PLC0415

        self._url = url
        self._closed = False
        self._channel = grpc.insecure_channel(_checked(url), options=_channel_options(url))
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        """End the connection; calls in progress are cancelled."""
        self._closed = True
        self._channel.close()

    def health(self, timeout_s: float) -> ServerHealth:
        """Return what the server says about itself and its models."""
        from tritonclient.grpc import service_pb2  # noqa: PLC0415

        with self._explained(timeout_s):
            ready = self._stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=timeout_s)
            about = self._stub.ServerMetadata(
                service_pb2.ServerMetadataRequest(), timeout=timeout_s
            )
            index = self._stub.RepositoryIndex(
                service_pb2.RepositoryIndexRequest(), timeout=timeout_s
            )
        return _read_health(ready, about, index)

    def interface(self, model: str, timeout_s: float) -> ModelInterface:
        """Return the tensors of a model.

        Raises:
            ServerError: the server has no such model, or does not answer.
        """
        from tritonclient.grpc import service_pb2  # noqa: PLC0415

        request = service_pb2.ModelConfigRequest(name=model)
        with self._explained(timeout_s):
            answer = self._stub.ModelConfig(request, timeout=timeout_s)
        return _read_interface(answer)

    def stream(self, request: service_pb2.ModelInferRequest, timeout_s: float) -> Replies:
        """Yield the replies to one request; closing the iterator cancels it on the server.

        Raises:
            ServerError: the model answered an error, the connection broke, or the deadline
                passed before the end of the stream.
        """
        with self._explained(timeout_s):
            call = self._stub.ModelStreamInfer(iter([request]), timeout=timeout_s)
            ending = False
            try:
                for response in call:
                    ending = _is_last(response)
                    yield _read_reply(response)
            finally:
                if ending:
                    _await_end(call)
                call.cancel()

    @contextlib.contextmanager
    def _explained(self, timeout_s: float) -> Iterator[None]:
        import grpc  # noqa: PLC0415

        try:
            yield
        except (grpc.RpcError, ValueError) as error:
            # A channel that is closed already raises a ValueError.
            if self._closed:
                raise _closed_error(self._url) from error
            if not isinstance(error, grpc.RpcError):
                raise
            raise _as_server_error(error, self._url, timeout_s) from error


@final
class AsyncTritonConnection:
    """The same for asyncio."""

    def __init__(self, url: str) -> None:
        import grpc  # noqa: PLC0415
        from tritonclient.grpc import service_pb2_grpc  # noqa: PLC0415

        self._url = url
        self._closed = False
        self._channel = grpc.aio.insecure_channel(_checked(url), options=_channel_options(url))
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def close(self) -> None:
        """End the connection; calls in progress are cancelled."""
        self._closed = True
        await self._channel.close()

    async def health(self, timeout_s: float) -> ServerHealth:
        """Return what the server says about itself and its models."""
        from tritonclient.grpc import service_pb2  # noqa: PLC0415

        stub = self._stub
        with self._explained(timeout_s):
            ready = await stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=timeout_s)
            about = await stub.ServerMetadata(
                service_pb2.ServerMetadataRequest(), timeout=timeout_s
            )
            index = await stub.RepositoryIndex(
                service_pb2.RepositoryIndexRequest(), timeout=timeout_s
            )
        return _read_health(ready, about, index)

    async def interface(self, model: str, timeout_s: float) -> ModelInterface:
        """Return the tensors of a model; errors as in `TritonConnection.interface`."""
        from tritonclient.grpc import service_pb2  # noqa: PLC0415

        request = service_pb2.ModelConfigRequest(name=model)
        with self._explained(timeout_s):
            answer = await self._stub.ModelConfig(request, timeout=timeout_s)
        return _read_interface(answer)

    async def stream(
        self, request: service_pb2.ModelInferRequest, timeout_s: float
    ) -> AsyncReplies:
        """Yield the replies to one request; errors as in `TritonConnection.stream`."""
        with self._explained(timeout_s):
            call = self._stub.ModelStreamInfer(iter([request]), timeout=timeout_s)
            ending = False
            try:
                async for response in call:
                    ending = _is_last(response)
                    yield _read_reply(response)
            finally:
                if ending:
                    await _await_end_async(call)
                call.cancel()

    @contextlib.contextmanager
    def _explained(self, timeout_s: float) -> Iterator[None]:
        import grpc  # noqa: PLC0415

        try:
            yield
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.CancelledError) as error:
            # To a reader, a closed channel looks as if its own task was cancelled.
            if self._closed and not _is_task_cancelled():
                raise _closed_error(self._url) from error
            if not isinstance(error, grpc.RpcError):
                raise
            raise _as_server_error(error, self._url, timeout_s) from error


def _is_task_cancelled() -> bool:
    # Python 3.10 does not count.
    return bool(getattr(asyncio.current_task(), "cancelling", int)())


def _is_last(response: service_pb2.ModelStreamInferResponse) -> bool:
    """Tell whether nothing worth reading follows; an error may have an end mark behind it."""
    ended: bool = response.infer_response.parameters[_FINAL].bool_param
    return ended or bool(response.error_message)


def _await_end(call: grpc.Call) -> None:
    import grpc  # noqa: PLC0415

    with contextlib.suppress(grpc.FutureTimeoutError):
        call.exception(timeout=_END_GRACE_S)


async def _await_end_async(call: grpc.aio.StreamStreamCall) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(call.code(), _END_GRACE_S)


def build_request(
    interface: ModelInterface, prompt: str, options: GenerationOptions
) -> service_pb2.ModelInferRequest:
    """Return the protobuf message that asks for one generation.

    Raises:
        ConfigError: the model has no input for an option that was set, or it cannot hold it.
    """
    from tritonclient.grpc import service_pb2  # noqa: PLC0415

    request = service_pb2.ModelInferRequest(model_name=interface.name)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    try:
        for tensor in request_tensors(interface, prompt, options):
            entry = request.inputs.add(name=tensor.name, datatype=tensor.datatype)
            entry.shape.extend(tensor.shape)
            request.raw_input_contents.append(_encoded(tensor))
    except UnsupportedOptionError as error:
        raise ConfigError(str(error), hint="leave the option out, or name another model") from error
    except UnicodeError as error:
        raise ConfigError(f"cannot send this request: {error}", hint="send valid text") from error
    for name in requested_outputs(interface):
        request.outputs.add(name=name)
    return request


def _encoded(tensor: Tensor) -> bytes:
    try:
        return encode_tensor(tensor.datatype, tensor.values)
    except ValueError as error:
        raise ConfigError(
            f"cannot send {tensor.name}: {error}", hint="use a value that fits the model's input"
        ) from error


def _checked(url: str) -> str:
    host, colon, port = url.rpartition(":")
    # isdigit alone knows digits that int does not.
    number = int(port) if port.isascii() and port.isdigit() else 0
    if "://" in url or not (host and colon and 0 < number <= 65535):  # noqa: PLR2004 - the last TCP port
        raise ConfigError(f"{url} is not HOST:PORT", hint="for example 127.0.0.1:8001")
    return url


def _channel_options(url: str) -> list[tuple[str, int]]:
    # A proxy named in the environment cannot reach the loopback address of this machine.
    local = url.startswith(("127.", "localhost:", "[::1]:"))
    return [
        ("grpc.enable_http_proxy", 0 if local else 1),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
    ]


def _read_health(
    ready: service_pb2.ServerReadyResponse,
    about: service_pb2.ServerMetadataResponse,
    index: service_pb2.RepositoryIndexResponse,
) -> ServerHealth:
    return ServerHealth(
        identity=about.name,
        version=about.version,
        ready=ready.ready,
        models=[
            ModelStatus(name=model.name, state=model.state, reason=model.reason)
            for model in index.models
        ],
    )


def _read_interface(answer: service_pb2.ModelConfigResponse) -> ModelInterface:
    from tritonclient.grpc import model_config_pb2  # noqa: PLC0415

    config = answer.config
    return ModelInterface(
        name=config.name,
        inputs={
            tensor.name: _wire_type(model_config_pb2.DataType.Name(tensor.data_type))
            for tensor in config.input
        },
        outputs=[tensor.name for tensor in config.output],
        batched=config.max_batch_size > 0,
    )


def _wire_type(config_type: str) -> str:
    """Return the protocol's word for a type of config.pbtxt, where strings are TYPE_STRING."""
    plain = config_type.removeprefix(_TYPE_PREFIX)
    return "BYTES" if plain == "STRING" else plain


def _read_reply(response: service_pb2.ModelStreamInferResponse) -> Reply:
    if response.error_message:
        raise ServerError(
            f"the server answered: {response.error_message}",
            hint="change the request if it is about that; the server's log may say more",
        )
    inference = response.infer_response
    outputs = _read_outputs(inference)
    return Reply(
        text=read_text(outputs),
        counts=read_counts(outputs),
        final=inference.parameters[_FINAL].bool_param,
    )


def _read_outputs(inference: service_pb2.ModelInferResponse) -> dict[str, list[TensorValue]]:
    # Stricter than zip alone: missing contents mean a broken backend, not missing outputs.
    pairs = zip(inference.outputs, inference.raw_output_contents, strict=True)
    try:
        return {tensor.name: decode_tensor(tensor.datatype, raw) for tensor, raw in pairs}
    except ValueError as error:
        raise ServerError(f"the server's answer cannot be read: {error}") from error


def _closed_error(url: str) -> ServerError:
    return ServerError(f"the connection to {url} was closed on this side", hint="make a new client")


def _as_server_error(error: grpc.RpcError, url: str, timeout_s: float) -> ServerError:
    import grpc  # noqa: PLC0415

    code, details = error.code(), error.details()
    if code is grpc.StatusCode.UNAVAILABLE:
        return ServerError(
            f"no server answers at {url}: {details}",
            hint="is it running? start one with: specdeploy serve",
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return ServerError(
            f"{url} did not finish its answer within {timeout_s:g} s",
            hint="give it more time with a larger timeout, or look at the server's log",
        )
    if code is grpc.StatusCode.NOT_FOUND:
        return ServerError(
            f"{url}: {details}", hint="leave the model out to have the one that takes text found"
        )
    return ServerError(f"{url}: {details} ({code.name})", hint="the server's log may say more")
