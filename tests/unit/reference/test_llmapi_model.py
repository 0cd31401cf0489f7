"""The llmapi shape's model.py with Triton and the engine played by small doubles."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from active_requests import ActiveRequests
from llm_types import CompletionOutput
from triton_doubles import InferenceResponse, MetricFamily, Request, Sender, TritonError, pb_utils

VERSION_FOLDER = Path(__file__).parents[3] / "templates/llmapi/tensorrt_llm/1"


class Result:
    """An engine's result: one word per step."""

    def __init__(self, words: list[str]) -> None:
        self.outputs = [CompletionOutput()]
        self.aborted = False
        self._words = words

    def abort(self) -> None:
        self.aborted = True

    def __iter__(self) -> Iterator[Result]:
        output = self.outputs[0]
        for index, word in enumerate(self._words):
            output.append(word)
            output.token_ids.append(index)
            if index == len(self._words) - 1:
                output.finish_reason = "length"
            yield self


class Engine:
    """Stands for the module ``tensorrt_llm``, which has no draft length per request."""

    arguments: ClassVar[dict[str, object]]
    calls: ClassVar[list[dict[str, object]]]
    results: ClassVar[list[Result]]

    def __init__(self, **arguments: object) -> None:
        Engine.arguments, Engine.calls, Engine.results = arguments, [], []

    def generate_async(self, prompt: str, params: object, **others: object) -> Result:
        Engine.calls.append({"prompt": prompt, "params": params, **others})
        if prompt == "broken":
            raise RuntimeError("out of memory")
        Engine.results.append(Result(["a", "", "bc", "d"]))
        return Engine.results[-1]

    def shutdown(self) -> None:
        pass


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A loaded model in a folder of its own, with the engine double."""
    engine = types.ModuleType("engine_double")
    vars(engine).update(LLM=Engine, SamplingParams=lambda **wishes: wishes)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", pb_utils())
    monkeypatch.setitem(sys.modules, "engine_double", engine)
    (tmp_path / "model.py").write_text((VERSION_FOLDER / "model.py").read_text())
    (tmp_path / "model.yaml").write_text(
        "model: /models/target\nmax_batch_size: 2\n"
        "triton_config: {sampling_defaults: {temperature: 0.5, seed: 3}, max_draft_length: 8}\n"
    )
    spec = importlib.util.spec_from_file_location("llmapi_model", tmp_path / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    config = {"parameters": {"llm_module": {"string_value": "engine_double"}}}
    model.initialize({"model_config": json.dumps(config), "model_name": "tensorrt_llm"})
    yield model
    model.finalize()


def text(value: str) -> list[bytes]:
    return [value.encode()]


def serve(model: Any, request: Request) -> list[InferenceResponse]:  # noqa: ANN401
    model.execute([request])
    assert request.sender.done.wait(10)
    return request.sender.sent


def prompt(value: str = "once", **inputs: Any) -> Request:  # noqa: ANN401
    return Request(text_input=np.array(text(value), dtype=object), **inputs)


def test_the_engine_gets_the_body_of_model_yaml(model: Any) -> None:  # noqa: ARG001, ANN401
    assert Engine.arguments == {"model": "/models/target", "max_batch_size": 2}


def test_streamed_responses_carry_only_new_text_and_the_last_one_the_totals(
    model: Any,  # noqa: ANN401
) -> None:
    responses = serve(model, prompt(streaming=[True], return_finish_reason=[True]))
    assert [r.outputs["text_output"] for r in responses] == [text("a"), text("bc"), text("d")]
    assert [r.outputs["num_output_tokens"] for r in responses] == [[1], [3], [4]]
    assert [("finish_reason" in r.outputs) for r in responses] == [False, False, True]


def test_without_streaming_there_is_one_response(model: Any) -> None:  # noqa: ANN401
    (response,) = serve(model, prompt())
    assert response.outputs["text_output"] == text("abcd")


def test_a_request_overrides_the_sampling_defaults(model: Any) -> None:  # noqa: ANN401
    serve(model, prompt(sampling_param_temperature=[0.25], sampling_param_stop=text("end")))
    assert Engine.calls[-1]["params"] == {"temperature": 0.25, "seed": 3, "stop": ["end"]}


def test_a_greedy_request_gives_neither_temperature_nor_top_k_nor_top_p(
    model: Any,  # noqa: ANN401
) -> None:
    wishes: dict[str, Any] = {
        "sampling_param_temperature": [0.0],
        "sampling_param_top_k": [5],
        "sampling_param_top_p": [0.9],
    }
    serve(model, prompt(**wishes))
    assert Engine.calls[-1]["params"] == {"seed": 3}


def test_a_greedy_request_does_not_hide_a_value_out_of_range(model: Any) -> None:  # noqa: ANN401
    for name, value in (("top_p", 1.5), ("top_p", -0.5), ("top_k", -1)):
        wishes: dict[str, Any] = {f"sampling_param_{name}": [value]}
        serve(model, prompt(**wishes, sampling_param_temperature=[0.0]))
        assert Engine.calls[-1]["params"] == {"seed": 3, name: value}


@pytest.mark.parametrize("k", [0, 4])
def test_an_engine_without_a_draft_length_per_request_refuses_it_by_name(
    model: Any,  # noqa: ANN401
    k: int,
) -> None:
    (response,) = serve(model, prompt(num_draft_tokens=[k]))
    assert "num_draft_tokens cannot be honoured by engine_double" in str(response.error)
    assert response.error is not None
    assert response.error.code == TritonError.INVALID_ARG


@pytest.mark.parametrize(("k", "error"), [(8, None), (9, "this server drafts at most 8")])
def test_a_request_drafts_no_more_than_the_server_was_planned_for(
    model: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
    k: int,
    error: str | None,
) -> None:
    monkeypatch.setattr(sys.modules["engine_double"], "SUPPORTS_DRAFT_LENGTH", True, raising=False)
    (response,) = serve(model, prompt(num_draft_tokens=[k]))
    assert (response.error is None) == (error is None)
    assert error is None or error in str(response.error)


def test_an_engine_that_fails_is_answered_as_an_internal_error(model: Any) -> None:  # noqa: ANN401
    (response,) = serve(model, prompt("broken"))
    assert "out of memory" in str(response.error)
    assert response.error is not None
    assert response.error.code == TritonError.INTERNAL
    assert serve(model, prompt())[0].error is None


def test_a_scalar_with_two_elements_is_refused_by_name(model: Any) -> None:  # noqa: ANN401
    (response,) = serve(model, prompt(sampling_param_max_tokens=[1, 2]))
    assert "sampling_param_max_tokens must have one element" in str(response.error)


def test_requests_are_counted(model: Any) -> None:  # noqa: ANN401
    serve(model, prompt())
    model.finalize()
    assert MetricFamily.made["specdeploy_requests_total"].metric.values == [1]
    assert MetricFamily.made["specdeploy_tokens_per_step"].metric.values == [1] * 4


def test_a_request_whose_client_went_away_is_aborted(model: Any) -> None:  # noqa: ANN401
    request = prompt()
    request.sender.cancelled = True
    serve(model, request)
    assert Engine.results[-1].aborted


def test_nobody_asks_about_cancellation_after_the_final_response(model: Any) -> None:  # noqa: ANN401
    """Triton 2.51 ends with a segmentation fault when somebody does."""
    request = prompt()
    serve(model, request)
    model.finalize()
    assert request.sender.questions > 0
    assert request.sender.late_questions == 0


def test_a_stop_for_an_id_reaches_the_requests_of_that_id_only() -> None:
    active = ActiveRequests()
    seven, eight = (active.add(request_id, Sender()) for request_id in ("7", "8"))
    active.abort("7")
    assert (seven.should_end(), eight.should_end()) == (True, False)


def test_ending_all_spares_what_is_over() -> None:
    active = ActiveRequests()
    over, running = (active.add("", Sender()) for _ in range(2))
    active.remove(over)
    active.abort_all()
    assert (over.should_end(), running.should_end()) == (False, True)
