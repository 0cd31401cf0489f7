"""What the engine shape's tests share: a pair, a rendered repository, a server, a client."""

from __future__ import annotations

import os
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.core.build import EnginePaths
from specdeploy.core.deployment import Deployment, ModelUse, ResolvedLimits
from specdeploy.core.models import ModelSpec, SpecialIds
from specdeploy.core.repository import Method, ModelRepository, RepositoryPlan
from specdeploy.core.serving import LaunchSpec
from specdeploy.runtimes.reference import ReferenceRuntime

END_ID = 0


def a_spec(name: str = "tiny") -> ModelSpec:
    return ModelSpec(
        name=name,
        architecture="LlamaForCausalLM",
        model_type="llama",
        hidden_size=64,
        layers=2,
        attention_heads=2,
        kv_heads=2,
        head_dim=32,
        vocab_size=512,
        context_length=2048,
        dtype="float32",
        tie_word_embeddings=False,
        parameters=1,
        special_ids=SpecialIds(eos=[END_ID], generation_eos=[END_ID]),
    )


def a_deployment(
    pair: Path = Path("/models"),
    *,
    method: Method = "draft_target",
    precision: str = "fp32",
    draft_length: int = 4,
    **changes: object,
) -> Deployment:
    """A deployment of ``pair/target`` and ``pair/draft`` in the engine shape."""
    target, draft = (
        ModelUse(path=str(pair / name), spec=a_spec(name), precision=precision)
        for name in ("target", "draft")
    )
    deployment = Deployment(
        target=target,
        draft=draft if method == "draft_target" else None,
        method=method,
        runtime="reference",
        shape="engine",
        draft_length=0 if method == "none" else draft_length,
        limits=ResolvedLimits(max_batch_size=4, max_seq_len=1024, max_num_tokens=4096),
    )
    return deployment.evolve(**changes)


def engines_of(deployment: Deployment) -> EnginePaths:
    draft = deployment.draft
    return EnginePaths(target=deployment.target.path, draft=draft.path if draft else None)


def a_plan(deployment: Deployment) -> RepositoryPlan:
    return ReferenceRuntime().plan_repository(deployment, engines=engines_of(deployment))


def rendered(plan: RepositoryPlan, *, must_exist: bool = True) -> dict[str, bytes]:
    return dict(StrictRenderer(template_root()).render(plan, must_exist=must_exist))


def write_repository(plan: RepositoryPlan, folder: Path) -> None:
    for path, content in rendered(plan).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    for directory in plan.directories:
        (folder / directory).mkdir(parents=True, exist_ok=True)


class Server:
    """A running server of one repository, and a client of its entry model."""

    def __init__(self, record: Any, entry_model: str) -> None:
        import tritonclient.grpc as triton

        self._triton = triton
        self.record = record
        self.entry_model = entry_model
        self.client = triton.InferenceServerClient(record.endpoints.grpc)

    def ask(self, text: str, **inputs: Any) -> list[dict[str, Any]]:
        """Return the responses' outputs in order; raises what the server answers as error."""
        inputs = {"text_input": text, "max_tokens": 32, **inputs}
        return self.infer(self.entry_model, inputs, outputs=None)

    def infer(
        self, model: str, inputs: Mapping[str, Any], outputs: Sequence[str] | None
    ) -> list[dict[str, Any]]:
        import queue

        config = self.client.get_model_config(model).config
        types = {tensor.name: tensor.data_type for tensor in config.input}
        answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        with self._triton.InferenceServerClient(self.record.endpoints.grpc) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer(
                model,
                [self._tensor(name, types[name], value) for name, value in inputs.items()],
                outputs=[self._triton.InferRequestedOutput(o) for o in outputs]
                if outputs
                else None,
                enable_empty_final_response=True,
            )
            found = []
            while True:
                result, error = answers.get(timeout=60)
                if error is not None:
                    raise error
                response = result.get_response()
                values = {o.name: result.as_numpy(o.name) for o in response.outputs}
                if values:
                    found.append(values)
                if response.parameters["triton_final_response"].bool_param:
                    return found

    def _tensor(self, name: str, data_type: int, value: Any) -> Any:
        import numpy as np
        from tritonclient.grpc.model_config_pb2 import DataType
        from tritonclient.utils import triton_to_np_dtype

        wire = DataType.Name(data_type).removeprefix("TYPE_").replace("STRING", "BYTES")
        if wire == "BYTES":
            words = value if isinstance(value, list) else [value]
            array = np.array([[w.encode() if isinstance(w, str) else w for w in words]], np.object_)
        elif isinstance(value, np.ndarray):
            array = value
        else:
            array = np.array(
                [value if isinstance(value, list) else [value]], triton_to_np_dtype(wire)
            )
        tensor = self._triton.InferInput(name, list(array.shape), wire)
        tensor.set_data_from_numpy(array)
        return tensor

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.record.endpoints.metrics}/metrics") as page:  # noqa: S310
            return page.read().decode()


def text_of(responses: list[dict[str, Any]]) -> str:
    return b"".join(r["text_output"].reshape(-1)[0] for r in responses).decode()


def number(responses: list[dict[str, Any]], name: str) -> Any:
    return responses[-1][name].reshape(-1)[0].item()


@contextmanager
def serving(plan: RepositoryPlan, folder: Path) -> Iterator[Server]:
    """Serve a plan for the time of the block."""
    from specdeploy.adapters.triton import TritonLauncher

    repository = folder / "repository"
    write_repository(plan, repository)
    spec = LaunchSpec(
        repository=str(repository),
        description=ModelRepository(
            runtime="reference",
            shape=plan.shape,
            method=plan.method,
            models=plan.models,
            entry_model=plan.entry_model,
            streaming=plan.streaming,
            draft_length=plan.draft_length,
            plan_digest="",
            environment=plan.environment,
            files=[],
        ),
        log=str(folder / "server.log"),
        state_directory=str(folder / "state"),
        stop_timeout_s=2,
    )
    server = TritonLauncher(os.environ).launch(spec)
    try:
        client = Server(server.record, plan.entry_model)
        _wait_ready(client, server, folder / "server.log")
        yield client
    finally:
        server.stop(hurry=lambda: False)


def _wait_ready(client: Server, server: Any, log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if server.exit_status() is not None:
            break
        try:
            if client.client.is_server_ready():
                return
        except Exception:  # noqa: BLE001 - it does not listen yet
            pass
        time.sleep(0.1)
    sys.stderr.write(log.read_text()[-5000:])
    raise AssertionError("the server did not become ready")
