"""The packaged release profiles, and files of profiles that a test makes up."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from specdeploy.adapters.release_files import read_release_profiles
from specdeploy.core.release_profile import ReleaseProfile
from specdeploy.core.releases import find_release

TABLES = Path(__file__).parent / "data" / "release_tables.yaml"


@cache
def profiles() -> tuple[ReleaseProfile, ...]:
    """Return what the package brings."""
    return read_release_profiles()


def profile_for(version: str) -> ReleaseProfile:
    """Return the packaged profile for a version."""
    return find_release(version, profiles())


@cache
def tables() -> dict[str, Any]:
    """Return the facts that the profiles are held against."""
    content: dict[str, Any] = yaml.safe_load(TABLES.read_text())
    return content


def a_document(**changes: object) -> dict[str, object]:
    """Return a complete profile file with one flag."""
    sections = (
        "removed_flags",
        "builder_rules",
        "converters",
        "quantize_formats",
        "engine_methods",
    )
    more = ("template_keys", "template_defaults", "llm_methods", "llm_sections", "precisions")
    return {
        "line": "9.1",
        "versions": ["9.1.0"],
        "paths": ["engine"],
        "sources": {"code": "the code", "docs": "the documents"},
        "flags": {"workers": {"default": 1, "source": "code"}},
        "draft_len_schedule": {"keys": "absent", "source": "docs"},
        "acceptance_gate": {
            "window_key": None,
            "threshold_key": None,
            "unit": "none",
            "source": "docs",
        },
        "containers": {},
        "known_bad": {},
        **{name: {} for name in (*sections, *more)},
        **changes,
    }
