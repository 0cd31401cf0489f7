"""Findings: what a check saw, how bad it is, and what to do about it."""

from __future__ import annotations

from typing import Literal

from specdeploy.core.record import Record

Severity = Literal["error", "warning", "info"]
FactValue = int | float | str | bool | None | list[int] | list[str]


class Finding(Record):
    """One observation of a check.

    Attributes:
        code: Stable identifier, listed in the docs (``tokenizer-ids-differ``).
        severity: ``error`` makes the verdict negative, ``warning`` only with ``--strict``.
        message: One sentence with the numbers in it.
        hint: What to do about it.
        facts: The numbers again, for programs.
    """

    code: str
    severity: Severity
    message: str
    hint: str | None = None
    facts: dict[str, FactValue] = {}
