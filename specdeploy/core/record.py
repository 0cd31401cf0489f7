"""The base of everything that crosses a stage boundary or a file."""

from __future__ import annotations

import hashlib
import json
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import Self


class Record(BaseModel):
    """An immutable, strictly validated value."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    def evolve(self, **changes: object) -> Self:
        """Return a validated copy with some fields replaced."""
        return type(self).model_validate({**dict(self), **changes})

    def digest(self) -> str:
        """Hash the canonical JSON form: equal records have equal digests (SHA-256, hex)."""
        return digest_json(self.model_dump(mode="json"))


class Document(Record):
    """A record that is written as a file of its own and carries its schema's version."""

    current_version: ClassVar[int] = 1

    schema_version: int = Field(default=1, description="Version of this file's schema.")

    @field_validator("schema_version")
    @classmethod
    def _not_from_the_future(cls, value: int) -> int:
        if not 1 <= value <= cls.current_version:
            raise ValueError(
                f"schema_version {value} is not supported; this release of specdeploy "
                f"reads versions 1 to {cls.current_version}"
            )
        return value


def digest_json(value: object) -> str:
    """Return the SHA-256 (hex) of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
