"""The part of ``tuning.json`` that fills values written ``auto``."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from specdeploy.core.record import Document, Record


class TuningChoice(Record):
    """The chosen point. A value that is not there was not decided.

    What else the file says about the choice is for people, hence ``extra="ignore"``.
    """

    model_config = ConfigDict(extra="ignore")

    draft_length: int | None = Field(default=None, ge=0)
    max_batch_size: int | None = Field(default=None, ge=1)
    max_num_tokens: int | None = Field(default=None, ge=1)
    max_seq_len: int | None = Field(default=None, ge=1)


class Tuning(Document):
    """``tuning.json``, as far as a build reads it."""

    model_config = ConfigDict(extra="ignore")

    choice: TuningChoice


class TuningFile(Record):
    """A choice, and the file it was read from."""

    path: str
    content_digest: str = Field(description="SHA-256 of the whole file's JSON in canonical form.")
    choice: TuningChoice
