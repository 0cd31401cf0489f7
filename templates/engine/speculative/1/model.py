"""``speculative``: draft and verify as one decoupled Triton model, in plain Python.

It takes the tensors of TensorRT-LLM's ``tensorrt_llm_bls`` and drives the same leaf models,
here over their reference, on GPUs over TensorRT-LLM's own back-end. Where time goes decides
the shape:

* One instance serves every request from a pool of threads. A thread waits for leaf models
  nearly all its life, and several instances would only hold several tokenizers.
* ``preprocessing`` is asked once per request, so the way a prompt becomes tokens stays in
  one place. Text is made here: stop words and unfinished characters need to be seen token
  by token, and a call of ``postprocessing`` would add a model call to every step.
* Metrics are published after the last response: each update is a message to the server.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, final

import numpy as np
import triton_python_backend_utils as pb_utils
from fields import Fields, InputError, Sampling, read_lengths
from leaves import Leaves
from metrics import SpeculationMetrics
from prompt_lookup import prompt_lookup
from rounds import NOTHING, Array, Proposal, Propose, RoundError, Rounds, Step
from speculative_request import GenerationRequest, Settings, read_request
from stopping import AnswerText, StopRules
from tokenizers import Tokenizer

_FINAL: Final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class CancelledError(Exception):
    """The client went away."""


@final
class TritonPythonModel:
    """Triton's entry points; one object per server."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read config.pbtxt's parameters; see there for their meaning."""
        config = json.loads(args["model_config"])
        values = {k: v["string_value"] for k, v in config["parameters"].items()}
        self._target = values["tensorrt_llm_model_name"]
        self._draft = values["tensorrt_llm_draft_model_name"]
        self._preprocessing = values["preprocessing_model_name"]
        self._method = values["method"]
        self._max_ngram = int(values["max_ngram_size"])
        self._max_seq_len = int(values["max_seq_len"])
        self._vocab_size = int(values["vocab_size"])
        self._settings = _settings(values)
        tokenizer = Tokenizer.from_file(values["tokenizer_file"])
        self._decode = partial(tokenizer.decode, skip_special_tokens=True)
        self._metrics = SpeculationMetrics(pb_utils, model=args["model_name"])
        self._threads = ThreadPoolExecutor(int(values["max_requests"]))

    def execute(self, requests: list[Any]) -> None:
        """Answer each request from a thread of its own.

        Tensors are read here: they lie in shared memory that is not ours afterwards.
        """
        for request in requests:
            sender = request.get_response_sender()
            arrived_ns = time.monotonic_ns()
            try:
                fields = Fields({t.name(): t.as_numpy() for t in request.inputs()})
                wanted = read_request(fields, self._settings)
            except InputError as error:
                _send_error(sender, str(error), pb_utils.TritonError.INVALID_ARG)
                continue
            self._threads.submit(self._serve, wanted, sender, arrived_ns)

    def finalize(self) -> None:
        """Drop what waits and let what runs end: Triton unloads no model in the middle."""
        self._threads.shutdown(cancel_futures=True)

    def _serve(self, request: GenerationRequest, sender: Any, arrived_ns: int) -> None:  # noqa: ANN401
        """Answer one request; whatever happens, the client gets a final response."""
        reply = Reply(sender, request, arrived_ns)
        try:
            steps = self._generate(request, reply)
        except InputError as error:
            _send_error(sender, str(error), pb_utils.TritonError.INVALID_ARG)
        except CancelledError:
            _send_error(sender, "the request was cancelled", pb_utils.TritonError.CANCELLED)
        except RoundError as error:
            _send_error(sender, str(error), pb_utils.TritonError.INTERNAL)
        except Exception as error:  # noqa: BLE001 - a thread's last resort: never a silent end
            pb_utils.Logger.log_error(f"speculative: {error!r}")
            _send_error(sender, f"speculative failed: {error!r}", pb_utils.TritonError.INTERNAL)
        else:
            self._publish(steps)

    def _generate(self, request: GenerationRequest, reply: Reply) -> list[Step]:
        leaves = Leaves(
            pb_utils,
            sampling=request.sampling,
            use_draft_logits=request.use_draft_logits,
            vocab_size=self._vocab_size,
        )
        reply.check_alive()
        rounds = self._rounds(request, leaves)
        steps = []
        while rounds.answer.finish_reason is None:
            reply.check_alive()
            steps.append(rounds.step())
            reply.add(steps[-1].piece.text)
            if rounds.answer.finish_reason is None:
                reply.flush(rounds.totals.output_tokens)
        reply.finish(rounds)
        return steps

    def _rounds(self, request: GenerationRequest, leaves: Leaves) -> Rounds:
        prompt = leaves.prompt_ids(self._preprocessing, request.text, request.max_tokens)
        read_lengths(
            prompt=len(prompt),
            max_tokens=request.max_tokens,
            max_seq_len=self._max_seq_len,
            names=("text_input", "max_tokens"),
        )
        rules = StopRules(request.max_tokens, request.end_ids, request.stop_words)
        return Rounds(
            prompt=prompt,
            answer=AnswerText(self._decode, rules),
            draft_length=request.draft_length,
            propose=self._proposer(leaves),
            verify=partial(leaves.verify, self._target),
        )

    def _proposer(self, leaves: Leaves) -> Propose:
        if self._method == "draft_target":
            return partial(leaves.draft, self._draft)
        if self._method == "ngram":
            return self._look_up
        return lambda *_: NOTHING

    def _look_up(self, tokens: Array, k: int, step: int) -> Proposal:
        del step
        return Proposal(prompt_lookup(tokens.tolist(), k, self._max_ngram))

    def _publish(self, steps: list[Step]) -> None:
        for step in steps:
            self._metrics.step(
                drafted=step.drafted, accepted=step.accepted, emitted=step.piece.used
            )
        self._metrics.request_finished()


@final
class Reply:
    """The responses of one request: pieces as they come, or one at the end."""

    def __init__(self, sender: Any, request: GenerationRequest, arrived_ns: int) -> None:  # noqa: ANN401
        self._sender = sender
        self._stream = request.stream
        self._perf_metrics = request.perf_metrics
        self._waiting = request.text if request.echo else ""
        self._times = {
            "arrival_time_ns": arrived_ns,
            "first_scheduled_time_ns": time.monotonic_ns(),
        }

    def check_alive(self) -> None:
        """Raise CancelledError when nobody waits any more."""
        if self._sender.is_cancelled():
            raise CancelledError

    def add(self, text: str) -> None:
        """Take the text of one step."""
        self._times.setdefault("first_token_time_ns", time.monotonic_ns())
        self._waiting += text

    def flush(self, output_tokens: int) -> None:
        """Send what a stream can show already, with the tokens so far."""
        if self._stream and self._waiting:
            counts = {"num_output_tokens": np.array([[output_tokens]], dtype=np.int32)}
            self._sender.send(_response(self._outputs() | counts))

    def finish(self, rounds: Rounds) -> None:
        """Send what is left with the counts of the whole answer."""
        totals = rounds.totals
        self._times["last_token_time_ns"] = time.monotonic_ns()
        outputs = self._outputs()
        outputs["acceptance_rate"] = np.array([[totals.acceptance_rate]], dtype=np.float32)
        counts = {
            "total_accepted_draft_tokens": totals.accepted,
            "total_draft_tokens": totals.drafted,
            "num_spec_steps": totals.steps,
            "num_output_tokens": totals.output_tokens,
        }
        outputs |= {k: np.array([[v]], dtype=np.int32) for k, v in counts.items()}
        if self._perf_metrics:
            outputs |= {k: np.array([[v]], dtype=np.int64) for k, v in self._times.items()}
        self._sender.send(_response(outputs), flags=_FINAL)

    def _outputs(self) -> dict[str, Array]:
        text, self._waiting = self._waiting, ""
        return {"text_output": np.array([[text.encode()]], dtype=np.object_)}


def _response(outputs: dict[str, Array]) -> Any:  # noqa: ANN401 - Triton's class
    tensors = [pb_utils.Tensor(name, array) for name, array in outputs.items()]
    return pb_utils.InferenceResponse(output_tensors=tensors)


def _send_error(sender: Any, message: str, code: int) -> None:  # noqa: ANN401
    error = pb_utils.TritonError(message, code)
    sender.send(pb_utils.InferenceResponse(error=error), flags=_FINAL)


def _settings(values: dict[str, str]) -> Settings:
    return Settings(
        draft_length=int(values["draft_length"]),
        max_draft_length=int(values["max_draft_length"]),
        use_draft_logits=values["use_draft_logits"] == "true",
        end_ids=frozenset(json.loads(values["end_ids"])),
        sampling=Sampling(
            temperature=float(values["temperature"]),
            top_k=int(values["top_k"]),
            top_p=float(values["top_p"]),
            seed=int(values["random_seed"]),
        ),
    )
