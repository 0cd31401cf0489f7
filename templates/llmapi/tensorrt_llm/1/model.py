"""The llmapi shape's only Triton model: ``tensorrt_llm``, draft and target in one engine.

``model.yaml`` holds the keyword arguments of ``LLM``, as upstream's model reads them, and
the parameter ``llm_module`` names the Python module that has ``LLM`` and ``SamplingParams``:
``tensorrt_llm`` on GPUs, ``reference_llm`` elsewhere.

Streaming responses carry the **new** text only, as the ``speculative`` model's do (upstream's
llmapi model repeats the whole text each time); the last one carries the totals.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils
import yaml
from active_requests import ActiveRequest, ActiveRequests
from llmapi_request import LlmRequest, RequestReader
from llmapi_response import NamedArray, piece, speculation_of, text, totals
from metrics import SpeculationMetrics

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Triton's entry point; each request is served by a thread of its own."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:  # noqa: ANN401 - Triton's type
        """Keep config.pbtxt as it is: it says everything."""
        return config

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine."""
        config = json.loads(args["model_config"])
        settings = yaml.safe_load(Path(__file__).with_name("model.yaml").read_text("utf-8"))
        triton = settings.pop("triton_config")
        self._engine = importlib.import_module(config["parameters"]["llm_module"]["string_value"])
        self._defaults: dict[str, Any] = triton.get("sampling_defaults", {})
        self._max_draft_length: int | None = triton.get("max_draft_length")
        self._llm = self._engine.LLM(**settings)
        self._metrics = SpeculationMetrics(pb_utils, model=args["model_name"])
        self._active = ActiveRequests()
        self._workers = ThreadPoolExecutor(int(settings.get("max_batch_size", 1)), "request")

    def execute(self, requests: list[Any]) -> None:
        """Take requests; they are answered through their response senders."""
        for request in requests:
            sender = request.get_response_sender()
            reader = RequestReader(pb_utils, request)
            try:
                self._accept(request.request_id(), reader, sender)
            except ValueError as error:
                _send_error(sender, str(error))

    def finalize(self) -> None:
        """End what is running and release the engine."""
        self._active.abort_all()
        self._workers.shutdown(wait=True, cancel_futures=True)
        self._llm.shutdown()

    def _accept(self, request_id: str, reader: RequestReader, sender: Any) -> None:  # noqa: ANN401
        if reader.asks_to_stop():
            self._stop(request_id, sender)
            return
        request = reader.read(self._defaults)
        active = self._active.add(request_id, sender)
        self._workers.submit(self._serve, request, active)

    def _stop(self, request_id: str, sender: Any) -> None:  # noqa: ANN401 - Triton's type
        if not request_id:
            raise ValueError("stop needs the id of the request to stop")
        self._active.abort(request_id)
        _send(sender, [text("text_output", "")], final=True)

    def _serve(self, request: LlmRequest, active: ActiveRequest) -> None:
        try:
            self._generate(request, active)
        except ValueError as error:
            _send_error(active.sender, str(error))
        except Exception as error:  # noqa: BLE001 - a thread's last line: the client must hear
            pb_utils.Logger.log_error(f"request failed: {error!r}")
            _send_error(active.sender, f"internal error: {error!r}", pb_utils.TritonError.INTERNAL)
        finally:
            self._active.remove(active)

    def _generate(self, request: LlmRequest, active: ActiveRequest) -> None:
        result = self._llm.generate_async(
            request.prompt,
            self._engine.SamplingParams(**request.sampling),
            streaming=True,
            **self._draft_length(request),
        )
        self._refuse_unknown(request, result.outputs[0])
        seen = _Seen()
        for output in result:
            completion = output.outputs[0]
            seen.count(completion)
            if active.should_end():
                result.abort()
            if not request.streaming or completion.finish_reason is not None:
                continue
            if fresh := seen.fresh_text(completion):
                _send(active.sender, piece(completion, fresh), final=False)
        completion = result.outputs[0]
        last = piece(completion, seen.fresh_text(completion))
        _send(active.sender, [*last, *totals(completion, request.wanted)], final=True)
        # Each update is a message to the server, so none is sent while somebody waits.
        seen.publish(self._metrics)

    def _refuse_unknown(self, request: LlmRequest, completion: Any) -> None:  # noqa: ANN401
        for name in request.wanted:
            if not hasattr(completion, name):
                raise ValueError(f"return_{name} cannot be honoured by {self._engine.__name__}")

    def _draft_length(self, request: LlmRequest) -> dict[str, int]:
        if request.draft_length is None:
            return {}
        if not getattr(self._engine, "SUPPORTS_DRAFT_LENGTH", False):
            raise ValueError(
                f"num_draft_tokens cannot be honoured by {self._engine.__name__}, whose draft "
                "length is fixed when the server starts"
            )
        most = self._max_draft_length
        if most is not None and request.draft_length > most:
            raise ValueError(
                f"num_draft_tokens is {request.draft_length}; this server drafts at most {most}"
            )
        return {"draft_length": request.draft_length}


class _Seen:
    """What a request had reached when it was last looked at."""

    def __init__(self) -> None:
        self._text = self._tokens = self._drafted = self._accepted = 0
        self._steps: list[dict[str, int]] = []

    def fresh_text(self, completion: Any) -> str:  # noqa: ANN401 - the engine's type
        """Return the text since the last call."""
        fresh: str = completion.text[self._text :]
        self._text = len(completion.text)
        return fresh

    def publish(self, metrics: SpeculationMetrics) -> None:
        """Publish every step and the request."""
        for step in self._steps:
            metrics.step(**step)
        metrics.request_finished()

    def count(self, completion: Any) -> None:  # noqa: ANN401 - the engine's type
        """Note the step since the last look."""
        speculation = speculation_of(completion)
        drafted = getattr(speculation, "total_draft_tokens", self._drafted)
        accepted = getattr(speculation, "total_accepted_draft_tokens", self._accepted)
        tokens = len(completion.token_ids)
        if tokens > self._tokens:
            self._steps.append(
                {
                    "drafted": drafted - self._drafted,
                    "accepted": accepted - self._accepted,
                    "emitted": tokens - self._tokens,
                }
            )
        self._tokens, self._drafted, self._accepted = tokens, drafted, accepted


def _send(sender: Any, tensors: Iterable[NamedArray], *, final: bool) -> None:  # noqa: ANN401
    response = pb_utils.InferenceResponse([pb_utils.Tensor(*tensor) for tensor in tensors])
    sender.send(response, flags=_FINAL if final else 0)


def _send_error(sender: Any, message: str, code: Any = None) -> None:  # noqa: ANN401
    error = pb_utils.TritonError(message, code or pb_utils.TritonError.INVALID_ARG)
    sender.send(pb_utils.InferenceResponse(error=error), flags=_FINAL)
