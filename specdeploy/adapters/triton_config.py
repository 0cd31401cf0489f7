"""``config.pbtxt`` as Triton reads it: parsed by the published protobuf, and nothing else.

Importing ``tritonclient.grpc`` would load gRPC as well, so the generated module is loaded
from its file.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from specdeploy.errors import ArtifactError, MissingToolError

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig


def parse_model_config(text: str, path: str) -> ModelConfig:
    """Parse ``<model>/config.pbtxt``.

    Raises:
        ArtifactError: it is no ModelConfig, or it names another model than its folder.
    """
    from google.protobuf import text_format  # noqa: PLC0415 - 20 ms that only rendering pays

    config = _protobuf().ModelConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        # Its message starts with "line:column : ".
        raise ArtifactError(f"{path}:{error}") from error
    folder = Path(path).parent.name
    if folder and config.name != folder:
        raise ArtifactError(f"{path}: the name is {config.name!r}, its folder is {folder!r}")
    return config


def absolute_paths(config: ModelConfig) -> list[str]:
    """Return the parameters' values that are absolute paths."""
    values = (parameter.string_value for parameter in config.parameters.values())
    return [value for value in values if value.startswith("/")]


@functools.cache
def _protobuf() -> ModuleType:
    # Looking for the top-level package does not import it.
    package = importlib.util.find_spec("tritonclient")
    if package is None or not package.submodule_search_locations:
        raise MissingToolError(
            "tritonclient is not installed; config.pbtxt files cannot be checked",
            hint="pip install 'tritonclient[grpc]'",
        )
    file = Path(package.submodule_search_locations[0], "grpc", "model_config_pb2.py")
    spec = importlib.util.spec_from_file_location("tritonclient.grpc.model_config_pb2", file)
    assert spec is not None  # noqa: S101 - a path that ends in .py always has a loader
    assert spec.loader is not None  # noqa: S101 - same
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
