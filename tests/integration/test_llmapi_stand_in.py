"""The rendered repository of the LLM API runtime, served in process by a strict stand-in."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from llmapi_plans import a_release, served
from llmapi_signatures import signatures
from llmapi_stand_in import tensorrt_llm
from reference_pairs import write_pair
from triton_doubles import InferenceResponse, Request, pb_utils

from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.adapters.triton_config import parse_model_config
from specdeploy.core.build import EnginePaths
from specdeploy.runtimes.llmapi import LlmApiRuntime

PROMPT = "def main(argument):"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random pair: a folder with ``target`` and ``draft``."""
    return write_pair(tmp_path_factory.mktemp("pair"))


def write_repository(folder: Path, pair: Path, version: str, **changes: object) -> Path:
    """Render the repository of a release into a folder; return its version folder."""
    deployment = served(**changes).evolve(release=a_release(version))
    draft = str(pair / "draft") if deployment.method == "draft_target" else None
    engines = EnginePaths(target=str(pair / "target"), draft=draft)
    plan = LlmApiRuntime().plan_repository(deployment, engines=engines)
    for path, content in StrictRenderer(template_root()).render(plan):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder / "tensorrt_llm/1"


def load(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    """Load ``model.py`` as Triton does, where the package of a release is installed."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", pb_utils())
    monkeypatch.setitem(sys.modules, "tensorrt_llm", tensorrt_llm(version))
    spec = importlib.util.spec_from_file_location("llmapi_rendered", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = parse_model_config((folder.parent / "config.pbtxt").read_text(), "config.pbtxt")
    parameters = {k: {"string_value": p.string_value} for k, p in config.parameters.items()}
    model = module.TritonPythonModel()
    arguments = {"model_config": json.dumps({"parameters": parameters}), "model_name": "m"}
    model.initialize(arguments)
    return model


@contextlib.contextmanager
def loaded(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    model = load(folder, version, monkeypatch)
    try:
        yield model
    finally:
        model.finalize()


def ask(model: Any, **inputs: Any) -> list[InferenceResponse]:  # noqa: ANN401
    text = np.array([PROMPT.encode()], dtype=object)
    request = Request(text_input=text, sampling_param_max_tokens=np.array([24]), **inputs)
    model.execute([request])
    assert request.sender.done.wait(60)
    return request.sender.sent


def text_of(responses: list[InferenceResponse]) -> bytes:
    assert all(response.error is None for response in responses)
    return b"".join(response.outputs["text_output"][0] for response in responses)


@pytest.mark.parametrize("version", signatures())
@pytest.mark.parametrize("method", ["draft_target", "ngram"])
def test_a_release_serves_its_rendered_repository_with_the_targets_own_answer(
    pair: Path, tmp_path: Path, version: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write_repository(tmp_path / "plain", pair, version, method="none")
    with loaded(plain, version, monkeypatch) as model:
        expected = text_of(ask(model))
    folder = write_repository(tmp_path / "fast", pair, version, method=method)
    with loaded(folder, version, monkeypatch) as model:
        responses = ask(model, streaming=np.array([True]))
    assert text_of(responses) == expected
    totals = responses[-1].outputs
    assert totals["total_draft_tokens"][0] > 0
    assert totals["num_output_tokens"] == [24]
    assert "total_draft_tokens" not in responses[0].outputs


def test_temperature_0_is_greedy_however_the_request_says_it(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_repository(tmp_path, pair, "1.2.0")
    with loaded(folder, "1.2.0", monkeypatch) as model:
        greedy = {"temperature": np.array([0.0]), "top_k": np.array([0]), "top_p": np.array([1.0])}
        wishes = {f"sampling_param_{name}": value for name, value in greedy.items()}
        assert text_of(ask(model, **wishes)) == text_of(ask(model))


def test_a_draft_length_per_request_is_refused_with_the_reason(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_repository(tmp_path, pair, "1.2.0")
    with loaded(folder, "1.2.0", monkeypatch) as model:
        (response,) = ask(model, num_draft_tokens=np.array([2]))
    assert "fixed when the server starts" in str(response.error)


@pytest.mark.parametrize(
    ("rendered_for", "installed", "message"),
    [
        ("1.2.0", "1.0.0", "return_perf_metrics"),
        ("1.0.0", "1.4.0rc4", "Invalid decoding type: DraftTarget"),
        ("1.4.0rc4", "1.2.0", "Invalid decoding type: Draft_Target"),
    ],
)
def test_the_repository_of_one_release_does_not_load_in_another(
    pair: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    rendered_for: str,
    installed: str,
    message: str,
) -> None:
    folder = write_repository(tmp_path, pair, rendered_for)
    with pytest.raises(ValueError, match=message):
        load(folder, installed, monkeypatch)


def test_an_unknown_nested_key_is_refused_in_the_words_of_pydantic(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_repository(tmp_path, pair, "1.2.0")
    settings = yaml.safe_load((folder / "model.yaml").read_text())
    settings["kv_cache_config"]["free_gpu_mem_fraction"] = 0.5
    (folder / "model.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(ValueError, match=r"free_gpu_mem_fraction\s+Extra inputs are not permitted"):
        load(folder, "1.2.0", monkeypatch)
