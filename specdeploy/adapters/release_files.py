"""The release profiles that come with the package, one YAML file per release line."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from specdeploy.core.release_profile import ReleaseProfile
from specdeploy.core.releases import complete_profiles
from specdeploy.errors import ArtifactError

RELEASES: Final = Path(__file__).resolve().parent.parent / "releases"
# libyaml is several times faster, and not in every build of PyYAML.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Base):  # type: ignore[misc] # chosen at run time
    """Refuses a key written twice, of which YAML would keep the last."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    None, None, f"{key.value!r} is set twice", key.start_mark
                )
            seen.add(key.value)
        constructed: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return constructed


def read_release_profiles(folder: Path = RELEASES) -> tuple[ReleaseProfile, ...]:
    """Return every profile of a folder, complete, from the oldest release to the newest.

    Raises:
        ArtifactError: the folder holds no profile, or a file that cannot be read.
        ConfigError: a file is no profile, or its base is not there.
    """
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ArtifactError(
            f"the release profiles are missing; looked in {folder}",
            hint="install specdeploy again",
        )
    return complete_profiles({file.stem: _read(file) for file in files})


def _read(file: Path) -> Mapping[str, object]:
    try:
        content = yaml.load(file.read_bytes(), Loader=_StrictLoader)  # noqa: S506 - a safe one
    except OSError as error:
        raise ArtifactError(f"cannot read {file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ArtifactError(f"{file.name}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ArtifactError(f"{file.name} holds no mapping")
    return content
