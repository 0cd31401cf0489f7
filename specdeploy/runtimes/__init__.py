"""Back-ends that describe builds, repositories and launches; none of them acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specdeploy.runtimes.base import Runtime
from specdeploy.runtimes.engine import EngineRuntime
from specdeploy.runtimes.llmapi import LlmApiRuntime
from specdeploy.runtimes.reference import ReferenceRuntime

RUNTIMES: Final[Mapping[str, Runtime]] = {
    runtime.name: runtime for runtime in (ReferenceRuntime(), EngineRuntime(), LlmApiRuntime())
}
