"""Read one checkpoint and work out its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdeploy.core.inspection import Inspection, inspect_model
from specdeploy.core.kv_cache import AUTO
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
    path = _locate(request.reference, hub)
    return inspect_model(
        checkpoints.read_model(path), path=str(path), tp=request.tp, kv_dtype=request.kv_dtype
    )


def _locate(reference: str, hub: HubResolver) -> Path:
    path = Path(reference).expanduser()
    if path.exists() or path.is_symlink() or not HUB_ID.fullmatch(reference):
        return path
    try:
        return hub.resolve(reference)
    except ConfigError as error:
        raise CheckpointError(
            f"{reference} does not exist here, and as a Hub id: {error}", hint=error.hint
        ) from error
