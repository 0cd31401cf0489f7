"""Which TensorRT-LLM release a deployment is made for, and whether its tools are here."""

from __future__ import annotations

from specdeploy.core.deployment import Deployment
from specdeploy.core.hardware import find_gpu
from specdeploy.core.releases import Release, decide_version, find_release
from specdeploy.core.resolution import LoadedConfig
from specdeploy.errors import ConfigError, MissingToolError
from specdeploy.runtimes import RUNTIMES
from specdeploy.workflows.tuning_ports import ReleaseProfiles


def with_release(
    deployment: Deployment, loaded: LoadedConfig, *, profiles: ReleaseProfiles, host: str | None
) -> Deployment:
    """Add the release and the GPUs that a TensorRT-LLM runtime plans for.

    Args:
        deployment: What is made.
        loaded: Its settings.
        profiles: Where the releases are read.
        host: Version of the TensorRT-LLM on this machine; None: there is none.

    Raises:
        ConfigError: nothing names a version, it is not known, or the GPU is not.
    """
    if not RUNTIMES[deployment.runtime].capabilities.needs_gpu:
        return deployment
    asked, hardware = loaded.config.runtime, loaded.config.hardware
    known = profiles()
    decided = decide_version(asked.trtllm_version, asked.container, host, profiles=known)
    return deployment.evolve(
        release=Release(decided=decided, profile=find_release(decided.version, known)),
        gpu=None if hardware.gpu is None else find_gpu(hardware.gpu),
        gpu_count=hardware.count,
        trtllm_source=asked.trtllm_source,
    )


def require_tools(deployment: Deployment, *, host: str | None) -> None:
    """Refuse to build what the tools of this machine cannot.

    Raises:
        MissingToolError: TensorRT-LLM is not installed.
        ConfigError: it is another version, or its sources were not named.
    """
    release = deployment.release
    if release is None or deployment.shape == "llmapi":
        return  # nothing is built: the server reads the checkpoints
    version = release.decided.version
    images = [t for t, image in release.profile.containers.items() if image.trtllm == version]
    tag = images[-1] if images else "<release>"
    if host is None:
        raise MissingToolError(
            f"TensorRT-LLM {version} is not installed here",
            hint=f"build inside nvcr.io/nvidia/tritonserver:{tag}-trtllm-python-py3; "
            "--dry-run plans anywhere",
        )
    decide_version(version, None, host, profiles=[release.profile])
    if deployment.trtllm_source is None:
        raise ConfigError(
            "runtime.trtllm_source is not set",
            hint=f"it is the folder of TensorRT-LLM {version}'s sources, whose examples convert "
            "checkpoints",
        )
