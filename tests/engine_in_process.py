"""The engine shape's own model files, run in this process instead of on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from engine_plans import a_plan, rendered
from fake_triton import FakeTriton, Sender

from specdeploy.adapters.templates import template_root
from specdeploy.core.deployment import Deployment

_FOLDERS: Final = {
    "preprocessing": "engine/preprocessing",
    "postprocessing": "engine/postprocessing",
    "speculative": "engine/speculative",
    "tensorrt_llm": "reference/tensorrt_llm",
    "tensorrt_llm_draft": "reference/tensorrt_llm",
}


def engine_shape(deployment: Deployment) -> FakeTriton:
    """Load every Python model of a deployment's repository."""
    plan = a_plan(deployment)
    triton = FakeTriton(rendered(plan, must_exist=True))
    for model in plan.models:
        if model in _FOLDERS:
            triton.load(model, template_root() / _FOLDERS[model] / "1" / "model.py")
    return triton


def ask(triton: FakeTriton, text: str, **inputs: Any) -> Sender:  # noqa: ANN401
    """Ask ``speculative`` for up to 24 tokens."""
    return triton.ask("speculative", {"text_input": text, "max_tokens": 24, **inputs})


def text_of(answer: Sender) -> str:
    """Join the text of every response; fails when one is an error."""
    pieces = []
    for response in answer.responses:
        assert response.error() is None, response.error()
        pieces.append(response.outputs["text_output"].item())
    return b"".join(pieces).decode()


def count(answer: Sender, name: str) -> float:
    """Return a number of the final response."""
    value: float = answer.responses[-1].outputs[name].item()
    return value


def error_of(answer: Sender) -> str:
    """Return the message of the final response, which must be an error."""
    error = answer.responses[-1].error()
    assert error is not None
    return str(error)


def chain_pair(folder: Path, text: str, *, wrong: str = "") -> Path:
    """Write a target that says ``text`` and a draft that errs after ``wrong``."""
    from chain_models import write_chain  # noqa: PLC0415 - it loads torch

    write_chain(folder / "target", text)
    write_chain(folder / "draft", text, wrong=wrong)
    return folder
