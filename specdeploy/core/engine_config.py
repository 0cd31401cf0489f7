"""An engine's config.json against what was planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from specdeploy.core.build import Settings
from specdeploy.core.versions import parse_version
from specdeploy.errors import ConfigError

CONFIG_FILE: Final = "config.json"
VERSION: Final = "version"
"""Place of the TensorRT-LLM version, which may be more exact than the one planned."""


def config_mismatches(config: Mapping[str, object], expected: Settings) -> Iterator[str]:
    """Yield one sentence for each place that says otherwise than planned.

    Args:
        config: The file's content.
        expected: Dotted place to what must be there.
    """
    for place, wanted in expected.items():
        found = _at(config, place)
        if found != wanted and not (place == VERSION and _agree(found, wanted)):
            yield f"{place} is {found!r}, planned was {wanted!r}"


def _at(config: object, place: str) -> object:
    for key in place.split("."):
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def _agree(found: object, wanted: object) -> bool:
    try:
        return parse_version(str(found)).agrees_with(parse_version(str(wanted)))
    except ConfigError:
        return False
