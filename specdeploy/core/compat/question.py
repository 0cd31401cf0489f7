"""What is asked about a pair, and the answer."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from specdeploy.core.config import METHODS
from specdeploy.core.findings import Finding
from specdeploy.core.hardware import GpuSpec
from specdeploy.core.models import ModelSpec
from specdeploy.core.record import Document, Record
from specdeploy.core.resolution import uses_draft
from specdeploy.core.tokenizers import TokenizerFacts, TokenizerSpec
from specdeploy.errors import IncompatiblePairError

Verdict = Literal["compatible", "incompatible"]
TokenComparison = Literal["equal", "differ", "not-compared", "not-needed"]
Side = Literal["target", "draft"]

HEAD_METHODS: Final = ("eagle", "eagle3", "medusa", "mtp")
CHECKED_METHODS: Final = (*METHODS, *HEAD_METHODS)
DRAFTLESS_METHODS: Final = tuple(method for method in METHODS if not uses_draft(method))


class Member(Record):
    """One model of the pair, and how it would be served."""

    path: str
    model: ModelSpec
    tokenizer: TokenizerSpec | None = Field(default=None, description="None: no such files.")
    weights: str | None = Field(
        default=None, description="Identity of the weight files; None when there are none."
    )
    precision: str = "auto"
    tp: int = Field(default=1, ge=1)


class RuntimeFacts(Record):
    """What the runtime in question can serve."""

    name: str
    methods: list[str]
    precisions: list[str] = Field(default=[], description="Empty: any.")
    max_draft_length: int | None = None


class PairQuestion(Record):
    """Do these two belong together, served in this way?"""

    target: Member
    draft: Member | None = None
    draft_unused: bool = Field(default=False, description="A draft was named, but not needed.")
    method: str = "draft_target"
    draft_length: int = Field(default=4, ge=0, description="Tokens proposed per step.")
    max_seq_len: int | None = Field(default=None, description="Usable prompt + output tokens.")
    use_draft_logits: bool = Field(
        default=False, description="Accept by probability and not by equal tokens."
    )
    runtime: RuntimeFacts | None = Field(default=None, description="None: the pair alone.")
    trtllm_version: str | None = None
    gpu: GpuSpec | None = None

    @property
    def members(self) -> list[tuple[Side, Member]]:
        """The models at hand, with their side's name."""
        named: list[tuple[Side, Member | None]] = [("target", self.target), ("draft", self.draft)]
        return [(side, member) for side, member in named if member is not None]

    @property
    def whole_draft(self) -> Member | None:
        """The draft when it is a model of its own, with its own tokens; None for a head."""
        if self.draft is None or self.draft.model.head is not None:
            return None
        return self.draft


class MemberFacts(Record):
    """One model of the pair, as the report shows it."""

    path: str
    model: ModelSpec
    tokenizer: TokenizerFacts | None
    tp: int


class CompatReport(Document):
    """The answer of ``specdeploy check``."""

    verdict: Verdict
    tokens: TokenComparison = Field(
        description="What was found about token ids; not-compared when tokenizer files are missing."
    )
    method: str
    runtime: str | None
    findings: list[Finding]
    target: MemberFacts
    draft: MemberFacts | None

    def count(self, severity: str) -> int:
        """Return how many findings have this severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def raise_if_blocking(self, *, strict: bool = False) -> None:
        """Raise when the pair cannot be used; with ``strict`` also when there are warnings.

        Raises:
            IncompatiblePairError: naming the codes that block.
        """
        blocking = ("error", "warning") if strict else ("error",)
        found = (finding.code for finding in self.findings if finding.severity in blocking)
        codes = list(dict.fromkeys(found))
        if codes:
            refusal = "incompatible" if self.verdict == "incompatible" else "refused by --strict"
            raise IncompatiblePairError(f"the pair is {refusal}: {', '.join(codes)}")
