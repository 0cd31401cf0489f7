"""A plain client of Triton's stream, to see every response and error as it is."""

from __future__ import annotations

import queue
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tritonclient.grpc as triton
from fake_triton import Array, as_array
from tritonclient.grpc.model_config_pb2 import DataType
from tritonclient.utils import triton_to_np_dtype

from specdeploy.core.serving import ServerRecord

TIMEOUT_S: Final = 120.0

Outputs = dict[str, Array]


class Asking:
    """One request in progress."""

    def __init__(self, url: str) -> None:
        self._answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self._client = triton.InferenceServerClient(url)
        self._client.start_stream(lambda result, error: self._answers.put((result, error)))

    def send(self, model: str, inputs: Sequence[Any], outputs: Sequence[Any] | None) -> None:
        """Send the request."""
        self._client.async_stream_infer(
            model, inputs, outputs=outputs, enable_empty_final_response=True
        )

    def response(self) -> tuple[Outputs, bool]:
        """Wait for the next response; raises what the server answers as an error."""
        result, error = self._answers.get(timeout=TIMEOUT_S)
        if error is not None:
            raise error
        response = result.get_response()
        values = {o.name: result.as_numpy(o.name) for o in response.outputs}
        return values, response.parameters["triton_final_response"].bool_param

    def close(self, *, cancel: bool = False) -> None:
        """End the stream, with what is still being answered when ``cancel``."""
        self._client.stop_stream(cancel_requests=cancel)
        self._client.close()


class Client:
    """Asks the models of one server."""

    def __init__(self, server: ServerRecord) -> None:
        self._server = server
        self.entry_model = server.entry_model
        self._client = triton.InferenceServerClient(server.endpoints.grpc)
        self._types: dict[str, dict[str, int]] = {}

    def ask(self, text: str, **inputs: object) -> list[Outputs]:
        """Ask the entry model for up to 24 tokens; return its responses."""
        wanted = {"text_input": text, "max_tokens": 24, **inputs}
        return self.infer(self.entry_model, wanted)

    def infer(
        self, model: str, inputs: Mapping[str, object], outputs: Sequence[str] = ()
    ) -> list[Outputs]:
        """Ask any model; return the responses that hold something."""
        asking = self.begin(model, inputs, outputs)
        found, last = [], False
        try:
            while not last:
                values, last = asking.response()
                found += [values] if values else []
        finally:
            asking.close()
        return found

    def begin(
        self, model: str, inputs: Mapping[str, object], outputs: Sequence[str] = ()
    ) -> Asking:
        """Send a request without waiting for its responses."""
        tensors = [self._tensor(model, name, value) for name, value in inputs.items()]
        asking = Asking(self._server.endpoints.grpc)
        asking.send(model, tensors, [triton.InferRequestedOutput(o) for o in outputs] or None)
        return asking

    def calls(self, model: str) -> int:
        """Return how many requests a model has answered since the server started."""
        statistics = self._client.get_inference_statistics(model)
        return int(statistics.model_stats[0].inference_count)

    def metrics(self) -> dict[str, float]:
        """Return the metrics page: name with labels to value."""
        url = f"http://{self._server.endpoints.metrics}/metrics"
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as page:
            lines = page.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def _tensor(self, model: str, name: str, value: object) -> Any:  # noqa: ANN401
        if model not in self._types:
            config = self._client.get_model_config(model).config
            self._types[model] = {tensor.name: tensor.data_type for tensor in config.input}
        wire = DataType.Name(self._types[model][name]).removeprefix("TYPE_")
        wire = "BYTES" if wire == "STRING" else wire
        array = as_array(value, triton_to_np_dtype(wire))
        tensor = triton.InferInput(name, list(array.shape), wire)
        tensor.set_data_from_numpy(array)
        return tensor


def text_of(responses: list[Outputs]) -> str:
    """Join the text of all responses; each one must be whole UTF-8."""
    return "".join(r["text_output"].reshape(-1)[0].decode() for r in responses)


def number(responses: list[Outputs], name: str) -> float:
    """Return a number of the final response."""
    value: float = responses[-1][name].reshape(-1)[0].item()
    return value
