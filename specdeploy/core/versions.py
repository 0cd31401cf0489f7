"""TensorRT-LLM's version numbers: parsed, ordered, compared as far as they are given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from specdeploy.errors import ConfigError

Stage = Literal["dev", "rc", "final"]

_PARTS: Final = 4
_ORDER: Final[dict[Stage, int]] = {"dev": 0, "rc": 1, "final": 2}
_PATTERN: Final = re.compile(
    r"v?(?P<numbers>\d{1,6}(?:\.\d{1,6}){1,3})"
    r"(?:\.?(?P<stage>rc|dev)(?P<number>\d{1,12}))?"
    r"(?:\.?post(?P<post>\d{1,6}))?"
    r"(?:\+[\w.]+)?"
)


@dataclass(frozen=True, slots=True)
class TrtllmVersion:
    """One version, such as 1.2.0rc6.post2.

    Attributes:
        numbers: Two to four parts, as many as were given.
        stage: A candidate (rc), a weekly development build (dev), or a release.
        number: The number of the candidate or development build; 0 for a release.
        post: The number after ``post``; 0 when there is none.
    """

    numbers: tuple[int, ...]
    stage: Stage = "final"
    number: int = 0
    post: int = 0

    @property
    def minor(self) -> tuple[int, int]:
        """Return the first two parts."""
        return self.numbers[0], self.numbers[1]

    @property
    def key(self) -> tuple[tuple[int, ...], int, int, int]:
        """Return what versions are ordered by: dev < rc < release < post."""
        padded = self.numbers + (0,) * (_PARTS - len(self.numbers))
        return padded, _ORDER[self.stage], self.number, self.post

    def agrees_with(self, other: TrtllmVersion) -> bool:
        """Tell whether one is the other, or the less exact one is its beginning (1.2, 1.2.1)."""
        short, long = sorted((self, other), key=lambda version: len(version.numbers))
        if len(short.numbers) < len(long.numbers) and short.stage == "final" and not short.post:
            return long.numbers[: len(short.numbers)] == short.numbers
        return self.key == other.key


def parse_version(text: str) -> TrtllmVersion:
    """Return the version that ``text`` names; a local part (``+cu128``) is left out.

    Raises:
        ConfigError: it is no version number.
    """
    found = _PATTERN.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(
            f"{text!r:.60} is not a TensorRT-LLM version",
            hint="write it as 0.19.0, 1.2.1 or 1.2.0rc6.post2",
        )
    return TrtllmVersion(
        numbers=tuple(int(part) for part in found["numbers"].split(".")),
        stage=_stage(found["stage"]),
        number=int(found["number"] or 0),
        post=int(found["post"] or 0),
    )


def _stage(word: str | None) -> Stage:
    if word == "rc":
        return "rc"
    return "dev" if word == "dev" else "final"
