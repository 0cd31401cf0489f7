"""Versions of the programs and libraries that a runtime's build steps run."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final, final

from specdeploy.adapters.reference_convert import FORMAT
from specdeploy.errors import MissingToolError

# runtime -> (distributions that its steps import, the extra that brings them)
PYTHON_TOOLS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "reference": (("torch", "safetensors"), "reference"),
}


@final
class InstalledTools:
    """Looks versions up without importing anything."""

    def trtllm(self) -> str | None:
        """Return the version of TensorRT-LLM that is installed, if one is."""
        return _version("tensorrt_llm")

    def versions(self, runtime: str) -> dict[str, str]:
        """Return name to version of all that decides what a build step writes.

        Raises:
            MissingToolError: something is not installed; says how to install it.
        """
        distributions, extra = PYTHON_TOOLS.get(runtime, ((), ""))
        found = {name: _version(name) for name in distributions}
        if missing := sorted(name for name, number in found.items() if number is None):
            raise MissingToolError(
                f"the {runtime} runtime needs {' and '.join(missing)}, not installed here",
                hint=f"pip install 'specdeploy[{extra}]'",
            )
        known = {name: number for name, number in found.items() if number is not None}
        return {**known, "reference_convert": FORMAT} if runtime == "reference" else known


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
