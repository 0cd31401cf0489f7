"""docs/releases.md, made from the release profiles; `scripts/golden` writes and compares it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from specdeploy.adapters.release_files import read_release_profiles
from specdeploy.core.release_profile import ReleaseProfile

_HEAD: Final = """\
# TensorRT-LLM releases

What `specdeploy` knows of each release line; made by `scripts/golden` from the files of
`specdeploy/releases`, which hold every flag, key and default with its source. Adding a release
is adding a file there.
"""
_LINES: Final = (
    "Profile",
    "Versions",
    "Ways",
    "Methods of engines",
    "Methods of the LLM API",
    "`draft_len_schedule` keys",
)
_UNCERTAIN: Final = """
## What is uncertain

Facts that were bracketed by other releases, inferred, or found in no source. The note beside
each in its file says which. What is emitted never rests on a default: every flag is spelled out."""


def release_document() -> str:
    """Return the text of docs/releases.md."""
    profiles = read_release_profiles()
    parts = [
        [_HEAD],
        ["## Release lines\n", *_table(_LINES, _rows(profiles))],
        ["\n## Containers\n", *_containers(profiles)],
        ["\n## Known bad\n", *_known_bad(profiles)],
        [_UNCERTAIN, *_uncertain(profiles)],
    ]
    return "\n".join(line for part in parts for line in part) + "\n"


def _rows(profiles: Sequence[ReleaseProfile]) -> Iterator[tuple[str, ...]]:
    for profile in profiles:
        schedule = profile.draft_len_schedule
        yield (
            profile.name,
            ", ".join(profile.versions),
            ", ".join(profile.paths),
            ", ".join(profile.engine_methods) or "-",
            ", ".join(profile.llm_methods) or "-",
            {"lower": "lower bounds", "upper": "upper bounds"}.get(schedule.keys, schedule.keys),
        )


def _containers(profiles: Sequence[ReleaseProfile]) -> Iterator[str]:
    yield "Images `nvcr.io/nvidia/tritonserver:<tag>-trtllm-python-py3`.\n"
    rows = [
        (tag, entry.trtllm, entry.tensorrt, entry.cuda, entry.driver)
        for profile in profiles
        for tag, entry in profile.containers.items()
    ]
    yield from _table(("Tag", "TensorRT-LLM", "TensorRT", "CUDA", "Driver"), rows)


def _known_bad(profiles: Sequence[ReleaseProfile]) -> Iterator[str]:
    found: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for profile in profiles:
        for entry in profile.known_bad.values():
            found[entry.what, entry.workaround, entry.issue].append(profile.name)
    rows = [(_span(names, profiles), *told) for told, names in found.items()]
    yield from _table(("Releases", "What fails", "Way round", "Issue"), rows)


def _span(names: Sequence[str], profiles: Sequence[ReleaseProfile]) -> str:
    """Return a run of releases by its ends."""
    order = [profile.name for profile in profiles]
    first, last = order.index(names[0]), order.index(names[-1])
    whole = list(names) == order[first : last + 1] and len(names) > 1
    return f"{names[0]} to {names[-1]}" if whole else ", ".join(names)


def _uncertain(profiles: Sequence[ReleaseProfile]) -> Iterator[str]:
    for profile in profiles:
        sections: defaultdict[str, list[str]] = defaultdict(list)
        for place in profile.uncertain():
            section, _, name = place.partition(".")
            sections[section].append(f"`{name or section}`")
        yield f"\n### {profile.name}\n"
        for section, names in sections.items():
            size = sum(place.startswith(f"{section}.") for place, _ in profile.entries())
            told = f"all {size}" if len(names) == size > 1 else ", ".join(names)
            yield f"- {section}: {told}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(head)
    yield _row(["---"] * len(head))
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
