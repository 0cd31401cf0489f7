"""A language model engine with the interface of ``tensorrt_llm.LLM``, on PyTorch CPU.

The subset that the Triton model of the llmapi shape uses::

    llm = LLM(model="/models/target", dtype="float32", speculative_config={...})
    for output in llm.generate_async("Once", SamplingParams(max_tokens=20)):
        print(output.outputs[0].text_diff, end="")

``draft_length`` is an addition: TensorRT-LLM has no draft length per request. The
computation of a request happens in the thread that iterates over its result, so a request
costs no hand-over between threads; at most ``max_batch_size`` compute at a time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Generator, Iterator
from datetime import timedelta
from typing import Any, Final, final

import torch
from causal_lm import CausalModel, ModelError, load_model
from drafters import Drafter, ModelDrafter, PromptLookupDrafter
from generation import Generation, Step
from llm_config import EngineConfig, read_arguments, resolve_dtype
from llm_types import CompletionOutput, SamplingParams
from session_pool import SessionPool
from stopping import AnswerText, StopRules
from text_codec import TextCodec

__all__ = ["LLM", "RequestOutput", "SamplingParams"]

SUPPORTS_DRAFT_LENGTH: Final = True
"""Says that ``generate_async`` takes ``draft_length``."""


@final
class RequestOutput:
    """A request and its answer so far; iterate to compute it.

    Each iteration yields this object after one target pass, or once at the end when not
    streaming. Leaving the iteration early ends the computation.
    """

    def __init__(self, request_id: int, prompt: str | None, prompt_token_ids: list[int]) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.prompt_token_ids = prompt_token_ids
        self.outputs = [CompletionOutput()]
        self.aborted = threading.Event()
        self._steps: Generator[Step, None, None] = _only_last(iter(()))

    @property
    def finished(self) -> bool:
        """True when the answer is complete."""
        return self.outputs[0].finish_reason is not None

    def abort(self) -> None:
        """Ask the computation to stop after its current step."""
        self.aborted.set()

    def result(self) -> RequestOutput:
        """Compute to the end and return this object."""
        for _ in self:
            pass
        return self

    def drive(self, steps: Generator[Step, None, None]) -> RequestOutput:
        """Set where the answer comes from."""
        self._steps = steps
        return self

    def __iter__(self) -> Iterator[RequestOutput]:
        try:
            for _ in self._steps:
                yield self
        finally:
            self._steps.close()


@final
class LLM:
    """A target, and what drafts for it.

    Raises:
        ValueError: an argument is unknown or wrong.
        ModelError: a checkpoint cannot be served.
    """

    def __init__(self, **arguments: Any) -> None:  # noqa: ANN401 - the body of model.yaml
        self._config = config = read_arguments(arguments)
        torch.set_num_threads(config.num_threads)
        self._target = load_model(
            config.model, dtype=config.dtype, trust_remote_code=config.trust_remote_code
        )
        self._codec = TextCodec(config.tokenizer)
        self._draft = _load_draft(config)
        self._check_models()
        self._pool = SessionPool(self._target, config.max_batch_size)
        self._draft_pool = SessionPool(self._draft, config.max_batch_size) if self._draft else None
        self._ids = itertools.count()

    @property
    def max_seq_len(self) -> int:
        """Prompt and answer tokens that one request may have."""
        wanted = self._config.max_seq_len or self._target.context_length
        return min(wanted, self._target.context_length)

    def generate_async(
        self,
        inputs: str | list[int],
        sampling_params: SamplingParams | None = None,
        *,
        streaming: bool = True,
        draft_length: int | None = None,
    ) -> RequestOutput:
        """Check a request and return its result, which computes when iterated.

        Args:
            inputs: The prompt, as text or as token ids.
            sampling_params: Defaults to TensorRT-LLM's defaults (greedy, 32 tokens).
            streaming: Yield after every step, not only at the end.
            draft_length: Tokens to draft per step; 0 is plain decoding, None is the
                configured ``max_draft_len``.

        Raises:
            ValueError: the request cannot be served; says why.
        """
        params = sampling_params or SamplingParams()
        k = self._draft_length(draft_length)
        ids = self._codec.encode(inputs) if isinstance(inputs, str) else list(inputs)
        self._check_request(ids, params.max_tokens)
        output = RequestOutput(next(self._ids), inputs if isinstance(inputs, str) else None, ids)
        output.outputs[0].request_perf_metrics.timing_metrics.arrival_time = _now()
        steps = self._steps(output, params, k)
        return output.drive(steps if streaming else _only_last(steps))

    def shutdown(self) -> None:
        """Hold nothing that needs closing."""

    def _draft_length(self, wanted: int | None) -> int:
        speculative = self._config.speculative
        configured = speculative.max_draft_len if speculative else 0
        if wanted is None:
            return configured
        if wanted < 0:
            raise ValueError(f"the draft length must be at least 0, not {wanted}")
        if wanted and not speculative:
            raise ValueError(
                "this server has no speculative_config, so its draft length can only be 0"
            )
        return wanted

    def _check_request(self, ids: list[int], max_tokens: int) -> None:
        if not ids:
            raise ValueError("the prompt is empty")
        if not all(0 <= i < self._target.vocab_size for i in ids):
            raise ValueError("the prompt holds token ids outside the model's vocabulary")
        if len(ids) + max_tokens > self.max_seq_len:
            raise ValueError(
                f"prompt ({len(ids)} tokens) and max_tokens ({max_tokens}) together exceed "
                f"max_seq_len ({self.max_seq_len})"
            )

    def _steps(
        self, output: RequestOutput, params: SamplingParams, k: int
    ) -> Generator[Step, None, None]:
        target = self._pool.acquire(output.prompt_token_ids)
        drafter = self._drafter(params) if k else None
        try:
            output.outputs[0].request_perf_metrics.timing_metrics.first_scheduled_time = _now()
            answer = AnswerText(self._codec.decode, self._rules(params))
            generation = Generation(
                output.prompt_token_ids, target, drafter, params.choices(), answer
            )
            while answer.finish_reason is None:
                if output.aborted.is_set():
                    step = Step(answer.close("cancelled"), 0, 0)
                else:
                    step = generation.step(k)
                _record(output.outputs[0], answer, step)
                yield step
        finally:
            self._pool.release(target)
            if drafter is not None:
                drafter.close()

    def _rules(self, params: SamplingParams) -> StopRules:
        ends = self._target.end_ids if params.end_id is None else frozenset({params.end_id})
        return StopRules(params.max_tokens, ends, params.stop_words)

    def _drafter(self, params: SamplingParams) -> Drafter | None:
        speculative = self._config.speculative
        if speculative is None:
            return None
        if self._draft_pool is None:
            return PromptLookupDrafter(speculative.max_matching_ngram_size)
        return ModelDrafter(self._draft_pool, self._target.vocab_size, params.choices())

    def _check_models(self) -> None:
        """Refuse speculation where tokens cannot be taken back exactly."""
        if self._config.speculative is None:
            return
        for role, model in (("target", self._target), ("draft", self._draft)):
            if model is not None and not _rewinds(model):
                raise ModelError(
                    f"the {role} keeps a state that cannot be taken back, so drafted tokens "
                    "cannot be rejected; serve it with method none"
                )


def _load_draft(config: EngineConfig) -> CausalModel | None:
    if config.speculative is None or config.speculative.speculative_model is None:
        return None
    path = config.speculative.speculative_model
    return load_model(
        path,
        dtype=resolve_dtype(path, "auto"),
        lean=True,
        trust_remote_code=config.trust_remote_code,
    )


def _rewinds(model: CausalModel) -> bool:
    """Read, take back, read again: the logits must not know about it."""
    if not model.supports_rewind:
        return False
    session = model.session()
    first = session.advance([0, 1, 2, 3])
    session.rewind(1)
    again = session.advance([1, 2, 3])
    return torch.allclose(first[1:], again, rtol=0.05, atol=0.05)


def _record(output: CompletionOutput, answer: AnswerText, step: Step) -> None:
    output.append(step.piece.text)
    output.token_ids = answer.ids
    output.finish_reason, output.stop_reason = answer.finish_reason, answer.stop_reason
    metrics, timing = (
        output.request_perf_metrics.speculative_decoding,
        output.request_perf_metrics.timing_metrics,
    )
    timing.last_token_time = _now()
    if metrics.steps == 0:
        timing.first_token_time = timing.last_token_time
    metrics.steps += 1 if step.piece.used else 0
    metrics.total_draft_tokens += step.drafted
    metrics.total_accepted_draft_tokens += step.accepted


def _only_last(steps: Iterator[Step]) -> Generator[Step, None, None]:
    last = None
    for step in steps:
        last = step
    if last is not None:
        yield last


def _now() -> timedelta:
    return timedelta(microseconds=time.monotonic_ns() / 1000)
