"""Does a deployment ask for something its runtime cannot do?"""

from __future__ import annotations

from specdeploy.core.deployment import Deployment, ModelUse
from specdeploy.errors import ConfigError
from specdeploy.runtimes.base import Capabilities


def require_fit(deployment: Deployment, capabilities: Capabilities) -> None:
    """Refuse what the runtime cannot serve.

    Raises:
        ConfigError: names the setting, and what the runtime has instead.
    """
    name = f"the {deployment.runtime} runtime"
    if deployment.draft_length > capabilities.max_draft_length:
        raise ConfigError(
            f"draft_length {deployment.draft_length} is more than {name} drafts in one step",
            hint=f"it can be at most {capabilities.max_draft_length}",
        )
    _require_precision("target", deployment.target, name, capabilities)
    if deployment.draft:
        _require_precision("draft", deployment.draft, name, capabilities)


def _require_precision(role: str, use: ModelUse, name: str, capabilities: Capabilities) -> None:
    served = ", ".join(capabilities.precisions)
    if use.spec.quantization and not capabilities.needs_gpu:
        method = use.spec.quantization.method
        raise ConfigError(
            f"the {role}'s weights are quantized ({method}), which {name} does not serve",
            hint=f"use a checkpoint stored in one of {served}",
        )
    if use.precision not in capabilities.precisions:
        raise ConfigError(f"{role}.precision is {use.precision}, but {name} has {served}")
