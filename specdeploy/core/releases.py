"""Release profiles: completed from their files, and found by version, container or host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pydantic import Field, ValidationError

from specdeploy.core.record import Record
from specdeploy.core.release_profile import Container, ReleaseProfile
from specdeploy.core.versions import TrtllmVersion, parse_version
from specdeploy.errors import ConfigError

# A release's own: nothing of them holds for the next one.
_OWN: Final = ("name", "base", "line", "candidates", "versions", "paths", "containers")
_TAG: Final = re.compile(r"(?:^|:)(?P<tag>\d\d\.\d\d)(?P<rest>-[\w.-]+)?$")
_TRTLLM_IMAGE: Final = "-trtllm-python-py3"
_WAYS: Final = "set runtime.trtllm_version, such as 1.2.1, or a known runtime.container"

Document = Mapping[str, object]
Giver = Literal["config", "container", "host"]


class DecidedVersion(Record):
    """The TensorRT-LLM version that everything is made for."""

    version: str
    decided_by: Giver
    profile: str = Field(description="Name of its release profile.")
    notes: list[str] = []


class Release(Record):
    """A TensorRT-LLM release that something is made for."""

    decided: DecidedVersion
    profile: ReleaseProfile


def complete_profiles(documents: Mapping[str, Document]) -> tuple[ReleaseProfile, ...]:
    """Return the profiles that the files hold, each complete, from the oldest to the newest.

    A file may name another one as ``base``. A section that is a mapping then holds only what
    differs: an entry replaces the base's whole entry, null removes it. Name, versions, paths and
    containers are never taken over.

    Args:
        documents: Parsed files by name, without the extension.

    Raises:
        ConfigError: a base is missing or goes round in a circle, or a file is no profile.
    """
    profiles = [_profile(name, documents) for name in documents]
    return tuple(sorted(profiles, key=_order))


def find_release(version: str, profiles: Sequence[ReleaseProfile]) -> ReleaseProfile:
    """Return the profile for a version: ``1.2.1``, ``1.2.0rc6.post2``, ``0.17.0.post1``.

    Raises:
        ConfigError: not a version, or one that no profile is for; names the nearest known.
    """
    asked = parse_version(version)
    for profile in profiles:
        if profile.covers(asked):
            return profile
    kind = " (a development build)" if asked.stage == "dev" else ""
    raise ConfigError(
        f"TensorRT-LLM {version}{kind} is not known",
        hint=f"the nearest known: {', '.join(_neighbours(asked, profiles))}",
    )


def find_container(container: str, profiles: Sequence[ReleaseProfile]) -> Container | None:
    """Return what is in a Triton image, by name or tag; None for an image of another kind.

    ``nvcr.io/nvidia/tritonserver:25.05-trtllm-python-py3`` and ``25.05`` are the same one.

    Raises:
        ConfigError: a Triton image with TensorRT-LLM whose tag is not known.
    """
    found = _TAG.search(container.strip())
    if found is None or found["rest"] not in {None, _TRTLLM_IMAGE}:
        return None
    known = {tag: entry for profile in profiles for tag, entry in profile.containers.items()}
    if found["tag"] not in known:
        near = max((tag for tag in known if tag <= found["tag"]), default=min(known))
        raise ConfigError(
            f"no TensorRT-LLM container {found['tag']} is known",
            hint=f"the nearest known is {near}, with TensorRT-LLM {known[near].trtllm}",
        )
    return known[found["tag"]]


def decide_version(
    config_value: str | None,
    container: str | None,
    host_tools: str | None,
    *,
    profiles: Sequence[ReleaseProfile],
) -> DecidedVersion:
    """Return the version to make everything for, and who named it; it is never guessed.

    What the settings say comes first, then the container, then the tools of the build host,
    which count only where no container is used.

    Args:
        config_value: ``runtime.trtllm_version``.
        container: ``runtime.container``.
        host_tools: Version that the build host's own TensorRT-LLM tells.
        profiles: Every profile there is.

    Raises:
        ConfigError: two of them contradict each other, nobody names one, or it is not known.
    """
    given: list[tuple[Giver, str]] = []
    if config_value is not None:
        given.append(("config", config_value))
    if container is not None:
        image = find_container(container, profiles)
        given += [("container", image.trtllm)] if image else []
    elif host_tools is not None:
        given.append(("host", host_tools))
    if not given:
        raise ConfigError("nothing tells the TensorRT-LLM version", hint=_WAYS)
    _refuse_contradiction(given, container)
    return _decided(given, profiles)


def _decided(
    given: Sequence[tuple[Giver, str]], profiles: Sequence[ReleaseProfile]
) -> DecidedVersion:
    giver = given[0][0]
    # 1.2 beside an image that holds 1.2.1 is 1.2.1.
    version = max((text for _, text in given), key=lambda text: len(parse_version(text).numbers))
    profile = find_release(version, profiles)
    notes = []
    if not profile.describes(parse_version(version)):
        told = " and ".join(profile.versions)
        notes.append(f"the facts of profile {profile.name} are of {told}, not of {version}")
    return DecidedVersion(version=version, decided_by=giver, profile=profile.name, notes=notes)


def _refuse_contradiction(given: Sequence[tuple[Giver, str]], container: str | None) -> None:
    says = {
        "config": "runtime.trtllm_version",
        "container": f"the container {container}",
        "host": "the tools of this machine",
    }
    (first, mine), (other, theirs) = given[0], given[-1]
    if not parse_version(mine).agrees_with(parse_version(theirs)):
        raise ConfigError(
            f"{says[first]} is {mine} and {says[other]} have TensorRT-LLM {theirs}"
            if other == "host"
            else f"{says[first]} is {mine} and {says[other]} holds TensorRT-LLM {theirs}",
            hint="leave one of them out, or make them agree",
        )


def _profile(name: str, documents: Mapping[str, Document]) -> ReleaseProfile:
    merged = _merged(name, documents, ())
    try:
        return ReleaseProfile.model_validate({**merged, "name": name})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"release profile {name}: {place}: {first['msg']}") from None


def _merged(
    name: str, documents: Mapping[str, Document], below: tuple[str, ...]
) -> dict[str, object]:
    if name in below:
        raise ConfigError(f"release profiles are based on each other: {' -> '.join(below)}")
    own = dict(documents[name])
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str) or base not in documents:
        raise ConfigError(f"release profile {name}: there is no profile {base!r} to base it on")
    inherited = _merged(base, documents, (*below, name))
    kept = {key: value for key, value in inherited.items() if key not in _OWN}
    return {**kept, **{key: _over(kept.get(key), value) for key, value in own.items()}}


def _over(base: object, own: object) -> object:
    if not (isinstance(base, Mapping) and isinstance(own, Mapping)) or "source" in own:
        return own
    entries = {**base, **own}
    return {key: value for key, value in entries.items() if value is not None}


def _order(profile: ReleaseProfile) -> tuple[tuple[int, int], int]:
    line = parse_version(profile.line).minor
    return line, profile.candidates.first if profile.candidates else 0


def _neighbours(asked: TrtllmVersion, profiles: Sequence[ReleaseProfile]) -> list[str]:
    """Return the known versions before and after one."""
    known = {parse_version(text).key: text for p in profiles for text in p.versions}
    before = [key for key in sorted(known) if key <= asked.key][-1:]
    after = [key for key in sorted(known) if key > asked.key][:1]
    return [known[key] for key in (*before, *after)]
