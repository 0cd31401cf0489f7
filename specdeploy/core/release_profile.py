"""What is known of one TensorRT-LLM release line, entry by entry with its source.

A profile is data: the files of ``specdeploy/releases`` hold it, and whoever emits a flag, a key
or a template variable asks it instead of comparing versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from specdeploy.core.record import Record
from specdeploy.core.versions import TrtllmVersion, parse_version

Path = Literal["engine", "llmapi"]
Scalar = bool | int | float | str | None
Sm = Annotated[int, Field(ge=70, le=130)]


class Entry(Record):
    """One fact: a key of the profile's ``sources``, and whether it may be relied on."""

    source: str
    certain: bool = Field(
        default=True,
        description="False: bracketed by other releases, inferred, or not found in any source.",
    )
    note: str = ""


class BuildFlag(Entry):
    """One option of ``trtllm-build``, by its name without dashes."""

    default: Scalar = Field(description="None: not set; the builder decides.")
    switch: bool = Field(default=False, description="Takes no value.")
    values: list[str] = Field(default=[], description="The values it takes; empty: any.")
    aliases: list[str] = []


class RemovedFlag(Entry):
    """An option of an earlier release that this one refuses."""

    instead: str = Field(description="What to write now.")


class BuilderRule(Entry):
    """What ``trtllm-build`` does with a flag in a situation, whatever the command line says."""

    flag: str
    effect: Literal["turns_on", "turns_off", "refuses"]


class Converter(Entry):
    """A script that writes a TensorRT-LLM checkpoint."""

    path: str = Field(description="Inside the TensorRT-LLM repository.")
    flags: dict[str, Scalar] = Field(default={}, description="Its options and their defaults.")


class QuantizeFormat(Entry):
    """How one precision is asked for when a checkpoint is made."""

    script: Literal["quantize", "convert"]
    flags: list[str] = Field(description="The words on the command line.")
    quant_algo: str | None = Field(description="What config.json of the checkpoint then says.")


class EngineMethod(Entry):
    """A way of speculating that engines of this release have."""

    mode: str = Field(description="--speculative_decoding_mode of the target engine.")
    decoding_mode: str | None = Field(
        default=None, description="Triton's word for it; None: chosen by the engine or the BLS."
    )
    draft_engine: bool = Field(default=False, description="A second engine drafts.")
    triton: bool = Field(default=True, description="Triton's models can drive it.")


class TemplateKeys(Entry):
    """Variables of one upstream Triton model's config.pbtxt."""

    typed: list[str] = Field(description="In typed fields: unfilled, the file does not parse.")
    text: list[str] = Field(description="In strings: unfilled means the default.")


class MissingTensor(Entry):
    """A tensor of ``tensorrt_llm`` at 0.19 that this release does not have."""


class TemplateDefault(Entry):
    """What an unfilled template variable means, by ``model.variable``."""

    value: Scalar


class LlmField(Record):
    """One key of a configuration class."""

    default: Scalar | list[Scalar] = None
    required: bool = False
    computed: bool = Field(default=False, description="The default is worked out at run time.")
    unread: bool = Field(default=False, description="The default is not known.")
    alias: str = Field(default="", description="Another spelling that is read too.")


class LlmSection(Entry):
    """The keys of one section of the LLM API's YAML."""

    fields: dict[str, LlmField]
    complete: bool = Field(
        default=True, description="False: the class has keys that are not listed here."
    )


class LlmMethod(LlmSection):
    """How one method is written in ``speculative_config``, beside the base keys."""

    tag: str = Field(description="Value of decoding_type.")
    length_keys: list[str] = Field(
        description="Keys that carry the draft length; all are written, with the same value."
    )
    rules: list[str] = []


class DraftLenSchedule(Entry):
    """How ``draft_len_schedule`` (batch size -> draft length) is read.

    ``lower``: a length holds from its key on, ``{1: 4, 4: 2, 8: 0}``. ``upper``: up to its key,
    ``{4: 4, 8: 2}``, and no draft beyond the last. The same mapping can be valid as both and
    mean two things. ``absent``: the key is refused.
    """

    keys: Literal["absent", "lower", "upper"]
    must_contain_one: bool = Field(default=False, description="Batch size 1 has to be a key.")
    off_beyond_last: bool = Field(default=False, description="Length 0 above the last key.")
    excludes_max_concurrency: bool = False
    methods: list[str] = Field(default=[], description="Methods that obey it; empty: not known.")


class AcceptanceGate(Entry):
    """Keys that switch speculation off for good when too little is accepted."""

    window_key: str | None
    threshold_key: str | None
    unit: Literal["none", "tokens per step over requests", "rate over iterations"]


class PrecisionSupport(Entry):
    """GPUs that run a precision, as compute capability times 10."""

    engine: list[Sm] = []
    llmapi: list[Sm] = []


class Container(Entry):
    """A Triton image with TensorRT-LLM in it, by its tag."""

    trtllm: str
    tensorrt: str
    cuda: str
    driver: str


class KnownBad(Entry):
    """A combination that is known to fail, and the way round it."""

    what: str
    issue: str = Field(pattern=r"^[\w./-]+#\d+$", description="owner/repository#number.")
    workaround: str


class Candidates(Record):
    """Release candidates that a profile is for."""

    first: int = Field(ge=0)
    last: int = Field(ge=0)


class ReleaseProfile(Record):
    """Everything that is known of one release line."""

    name: str = Field(description="Also the name of its file.")
    line: str = Field(pattern=r"^\d+\.\d+$", description="First two parts of its versions.")
    candidates: Candidates | None = Field(
        default=None, description="None: the whole line; else candidates of its .0 release."
    )
    versions: list[str] = Field(
        description="Versions that the facts are of; what was read elsewhere is not certain."
    )
    paths: list[Path] = Field(min_length=1, description="Ways of serving that it has.")
    sources: dict[str, str] = Field(description="Key to repository, file and commit, or address.")
    flags: dict[str, BuildFlag]
    removed_flags: dict[str, RemovedFlag]
    builder_rules: dict[str, BuilderRule]
    converters: dict[str, Converter]
    quantize_formats: dict[str, QuantizeFormat]
    engine_methods: dict[str, EngineMethod]
    template_keys: dict[str, TemplateKeys]
    template_defaults: dict[str, TemplateDefault]
    missing_tensors: dict[str, MissingTensor] = {}
    llm_methods: dict[str, LlmMethod]
    llm_sections: dict[str, LlmSection]
    draft_len_schedule: DraftLenSchedule
    acceptance_gate: AcceptanceGate
    precisions: dict[str, PrecisionSupport]
    containers: dict[str, Container]
    known_bad: dict[str, KnownBad]

    @model_validator(mode="after")
    def _every_source_is_listed(self) -> Self:
        for where, entry in self.entries():
            if entry.source not in self.sources:
                raise ValueError(f"{where}: source {entry.source!r} is not in sources")
        return self

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Yield every fact with its dotted place in the file."""
        for section, value in self:
            if isinstance(value, Entry):
                yield section, value
            elif isinstance(value, Mapping):
                found = value.items()
                yield from ((f"{section}.{k}", e) for k, e in found if isinstance(e, Entry))

    def uncertain(self) -> list[str]:
        """Return the places of the facts that may not be relied on."""
        return [where for where, entry in self.entries() if not entry.certain]

    def covers(self, version: TrtllmVersion) -> bool:
        """Tell whether the profile is for ``version``; development builds have none."""
        if version.minor != parse_version(self.line).minor or version.stage == "dev":
            return False
        if self.candidates is None:
            return True
        return version.stage == "rc" and (
            self.candidates.first <= version.number <= self.candidates.last
        )

    def describes(self, version: TrtllmVersion) -> bool:
        """Tell whether the facts are of exactly this version, and not only of its line."""
        return any(parse_version(text).key == version.key for text in self.versions)
