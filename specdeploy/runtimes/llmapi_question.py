"""What the LLM API is asked for: a deployment, a release, and how tokens are drafted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specdeploy.core.deployment import Deployment
from specdeploy.core.release_profile import LlmMethod, ReleaseProfile
from specdeploy.core.releases import Release
from specdeploy.errors import ConfigError

# Their heads or models are files of their own.
NEEDS_DRAFT: Final = frozenset({"dflash", "draft_target", "eagle3", "pard"})
# They draft on the host, from tokens that the step before has to have delivered.
HOST_DRAFTERS: Final = frozenset({"auto", "ngram"})
# What the library's own choice ("AUTO") drafts at most, whatever was asked for.
_AUTO_LENGTH: Final = 5


@dataclass(frozen=True, slots=True)
class Speculation:
    """How tokens are drafted.

    Attributes:
        method: A method of release profiles, such as ``draft_target``, ``eagle3`` or ``mtp``.
        draft_length: Tokens proposed per step, at least 1.
        draft: Absolute path of the draft's checkpoint; None where nothing is loaded.
    """

    method: str
    draft_length: int
    draft: str | None = None

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one request takes of a pass: PARD's masks come on top of its drafts."""
        if self.method == "auto":
            return 1 + _AUTO_LENGTH
        return 2 * self.draft_length if self.method == "pard" else 1 + self.draft_length


@dataclass(frozen=True, slots=True)
class LlmQuestion:
    """Everything that decides the arguments of ``LLM``.

    Attributes:
        target: Absolute path of the target's checkpoint.
        speculation: None: nothing is drafted.
    """

    deployment: Deployment
    release: Release
    target: str
    speculation: Speculation | None = None

    @property
    def profile(self) -> ReleaseProfile:
        """Return what is known of the release."""
        return self.release.profile

    @property
    def version(self) -> str:
        """Return the release's version."""
        return self.release.decided.version

    @property
    def sm(self) -> int | None:
        """Return the GPU's compute capability x 10; None where it is not named."""
        return self.deployment.gpu.sm if self.deployment.gpu else None

    @property
    def method(self) -> LlmMethod | None:
        """Return how the method is written in this release; None when nothing is drafted."""
        return self.profile.llm_methods[self.speculation.method] if self.speculation else None

    @property
    def drafter_inside(self) -> bool:
        """Tell whether the drafter is part of the target's engine ("one model").

        A draft model is since the releases whose schedules have upper bounds.
        """
        if self.speculation is None or self.speculation.method in HOST_DRAFTERS:
            return False
        newer = self.profile.draft_len_schedule.keys == "upper"
        return newer or self.speculation.method != "draft_target"


def question(
    deployment: Deployment,
    release: Release,
    target: str,
    speculation: Speculation | None = None,
) -> LlmQuestion:
    """Return a question about any method of the release profiles.

    Raises:
        ConfigError: the release has no LLM API or no such method, or a draft is missing.
    """
    profile, version = release.profile, release.decided.version
    if "llmapi" not in profile.paths:
        raise ConfigError(
            f"TensorRT-LLM {version} is not served by its LLM API",
            hint="runtime engine serves it, or take 1.0 or later",
        )
    if speculation is None:
        return LlmQuestion(deployment, release, target)
    if speculation.method not in profile.llm_methods:
        raise ConfigError(
            f"the LLM API of TensorRT-LLM {version} does not speculate by {speculation.method}",
            hint=f"it has {', '.join(sorted(profile.llm_methods))}",
        )
    if speculation.method in NEEDS_DRAFT and speculation.draft is None:
        raise ConfigError(f"method {speculation.method} needs a draft model")
    return LlmQuestion(deployment, release, target, speculation)
