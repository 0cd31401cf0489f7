"""Read one checkpoint and work out its sizes."""

from __future__ import annotations

import os.path
from dataclasses import dataclass
from pathlib import Path

from specdeploy.core.inspection import Inspection, inspect_model
from specdeploy.core.precision import AUTO
from specdeploy.core.resolution import HUB_ID
from specdeploy.errors import CheckpointError, ConfigError
from specdeploy.workflows.ports import CheckpointReader, HubResolver


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """A checkpoint directory or Hub id, and how it would be served."""

    reference: str
    tp: int = 1
    kv_dtype: str = AUTO


def inspect(
    request: InspectRequest, *, checkpoints: CheckpointReader, hub: HubResolver
) -> Inspection:
    """Return the checkpoint's facts and sizes.

    Raises:
        CheckpointError: there is no such checkpoint, or it cannot be read.
        ConfigError: it cannot be served so.
    """
    path = locate(request.reference, hub)
    spec = checkpoints.read_model(path)
    shown = str(path).encode("utf-8", "replace").decode()
    return inspect_model(spec, path=shown, tp=request.tp, kv_dtype=request.kv_dtype)


def locate(reference: str, hub: HubResolver) -> Path:
    """Return the directory that a path or a Hub id means.

    Raises:
        CheckpointError: there is no such checkpoint.
    """
    if not reference:
        raise CheckpointError("no checkpoint is named")
    # os.path, unlike pathlib, answers for every text that a user may type.
    path = Path(os.path.expanduser(reference))  # noqa: PTH111
    if os.path.lexists(path) or not HUB_ID.fullmatch(reference):
        return path
    try:
        return hub.resolve(reference)
    except ConfigError as error:
        raise CheckpointError(
            f"{reference} does not exist here, and as a Hub id: {error}", hint=error.hint
        ) from error
