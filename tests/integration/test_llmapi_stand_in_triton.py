"""The rendered repository of the LLM API runtime on a real Triton, with a strict stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest
from llmapi_plans import a_release, served
from llmapi_support import write_repository
from reference_pairs import write_pair
from servers import running_server

from specdeploy.client import Client, GenerationOptions
from specdeploy.core.build import EnginePaths
from specdeploy.runtimes.llmapi import LlmApiRuntime

pytestmark = pytest.mark.triton

ROOT = Path(__file__).parents[2]
# The server's own Python finds the stand-in, and the engine behind it, in these folders.
FOLDERS = ("tests", "templates/shared", "templates/reference/lib", "templates/reference/llm")
PACKAGE = """
import sys

sys.path += {folders}

from llmapi_stand_in import tensorrt_llm

package = tensorrt_llm("1.2.0")
LLM, SamplingParams = package.LLM, package.SamplingParams
"""


def test_triton_loads_what_is_rendered_for_a_release_and_streams_its_answer(
    tmp_path: Path,
) -> None:
    pair = write_pair(tmp_path / "pair")
    engines = EnginePaths(target=str(pair / "target"), draft=str(pair / "draft"))
    deployment = served().evolve(release=a_release("1.2.0"))
    plan = LlmApiRuntime().plan_repository(deployment, engines=engines)
    repository = write_repository(tmp_path / "repository", plan)
    package = PACKAGE.format(folders=[str(ROOT / folder) for folder in FOLDERS])
    (repository / "tensorrt_llm/1/tensorrt_llm.py").write_text(package)
    with (
        running_server(repository, stop_at_once=True) as record,
        Client(record.endpoints.grpc, timeout_s=60) as client,
    ):
        pieces = list(client.stream("def main():", GenerationOptions(max_tokens=16)))
    assert "".join(piece.text for piece in pieces)
    assert len(pieces) > 1
