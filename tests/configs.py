"""Builders of configurations and of the models they name, for tests."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from specdeploy.adapters.config_files import LocalConfigFiles
from specdeploy.core.models import ModelSpec
from specdeploy.core.resolution import LoadedConfig
from specdeploy.errors import ConfigError
from specdeploy.workflows.deployment import ConfigRequest, load_config


def a_model_spec(*, name: str = "model", context_length: int = 2048, **facts: object) -> ModelSpec:
    """Return a small Llama-like model."""
    return ModelSpec.model_validate(
        {
            "name": name,
            "architecture": "LlamaForCausalLM",
            "model_type": "llama",
            "hidden_size": 64,
            "layers": 2,
            "attention_heads": 4,
            "kv_heads": 2,
            "head_dim": 16,
            "vocab_size": 512,
            "context_length": context_length,
            "dtype": "bfloat16",
            "tie_word_embeddings": True,
            "parameters": 100_000,
            **facts,
        }
    )


class FakeCheckpoints:
    """Knows models by their directory's name."""

    def __init__(self, **models: ModelSpec) -> None:
        self._models = models

    def read_model(self, path: Path) -> ModelSpec:
        return self._models[path.name]


class FakeHub:
    """Knows the directories of some Hub ids."""

    def __init__(self, known: Mapping[str, Path] | None = None) -> None:
        self._known = known or {}

    def resolve(self, repo_id: str) -> Path:
        if repo_id not in self._known:
            raise ConfigError("it is not cached", hint=f"hf download {repo_id}")
        return self._known[repo_id]


def write_config(folder: Path, text: str, name: str = "specdeploy.yaml") -> Path:
    """Write dedented YAML and return its path."""
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def load(
    folder: Path,
    text: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[tuple[str, str, str]] = (),
    tuning: Path | None = None,
) -> LoadedConfig:
    """Load a configuration with ``folder`` as the current one; ``text`` becomes its file."""
    if text is not None:
        write_config(folder, text)
    request = ConfigRequest(cwd=folder, environment=environment or {}, flags=flags, tuning=tuning)
    return load_config(request, files=LocalConfigFiles())
