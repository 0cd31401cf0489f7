"""Read the records of built artifacts and find the artifacts below a path."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, final

from pydantic import ValidationError

from specdeploy.adapters.durable import STAGING_MARK
from specdeploy.adapters.hashing import FileHasher
from specdeploy.core.artifacts import MANIFEST, REPOSITORY_RECORD
from specdeploy.core.build import ROLES, EngineManifest
from specdeploy.core.engine_config import CONFIG_FILE
from specdeploy.core.record import Document
from specdeploy.core.repository import FileEntry, ModelRepository
from specdeploy.errors import ArtifactError

Kind = TypeVar("Kind", bound=Document)


@final
class LocalArtifacts:
    """Artifacts on this machine, their files hashed by ``hasher``."""

    def __init__(self, hasher: FileHasher) -> None:
        self._hasher = hasher

    def find(self, path: Path) -> list[Path]:
        """Return the artifact directories at or below a path; unfinished ones are none.

        A directory where an artifact belongs is returned even when it lacks its record.

        Raises:
            ArtifactError: there is no such path, or nothing of ours below it.
        """
        if not os.path.exists(path):  # noqa: PTH110 - pathlib raises for names too long
            raise ArtifactError(f"{path} does not exist")
        found = [path] if _is_artifact(path) else _below(path)
        if not found:
            raise ArtifactError(
                f"{path} holds no engine, repository or workspace",
                hint="`specdeploy build` makes one",
            )
        return found

    def is_repository(self, directory: Path) -> bool:
        """Tell whether a directory is (or should be) a repository and not an engine."""
        return directory.name not in ROLES and not (directory / MANIFEST).exists()

    def read_manifest(self, directory: Path) -> EngineManifest:
        """Return an engine's manifest.

        Raises:
            ArtifactError: it is missing, garbage or of a newer schema.
        """
        return read_manifest(directory)

    def read_repository(self, directory: Path) -> ModelRepository:
        """Return a repository's record.

        Raises:
            ArtifactError: it is missing, garbage or of a newer schema.
        """
        return read_repository(directory)

    def entries(self, directory: Path, *, without: str) -> list[FileEntry]:
        """Hash the files of an artifact, its record excepted.

        Raises:
            ArtifactError: a file cannot be read.
        """
        try:
            return self._hasher.entries(directory, without=without)
        except OSError as error:
            raise ArtifactError(f"{error.filename or directory}: {error.strerror}") from error

    def read_config(self, directory: Path) -> Mapping[str, object]:
        """Return the content of an engine's config.json.

        Raises:
            ArtifactError: it is missing, or no JSON object.
        """
        file = directory / CONFIG_FILE
        try:
            content = json.loads(file.read_bytes())
        except OSError as error:
            raise ArtifactError(f"{file}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{file} is not JSON: {error}") from None
        if not isinstance(content, dict):
            raise ArtifactError(f"{file} holds no JSON object")
        return content

    def exists(self, path: str) -> bool:
        """Tell whether an absolute path that a file names is still there."""
        return os.path.exists(path)  # noqa: PTH110 - as above


def read_manifest(directory: Path) -> EngineManifest:
    """Read the record of an engine directory.

    Raises:
        ArtifactError: it is missing, garbage or of a newer schema.
    """
    return read_document(directory / MANIFEST, EngineManifest)


def read_repository(directory: Path) -> ModelRepository:
    """Read the record of a repository.

    Raises:
        ArtifactError: it is missing, garbage or of a newer schema.
    """
    return read_document(directory / REPOSITORY_RECORD, ModelRepository)


def read_document(file: Path, kind: type[Kind]) -> Kind:
    """Read one record.

    Raises:
        ArtifactError: it is missing, garbage or of a newer schema; names the field.
    """
    try:
        return kind.model_validate(json.loads(file.read_bytes()))
    except FileNotFoundError:
        raise ArtifactError(
            f"{file} is missing: the artifact is not whole", hint="build again"
        ) from None
    except OSError as error:
        raise ArtifactError(f"{file}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ArtifactError(f"{file}: {where}: {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{file} is not JSON: {error}") from None


def _is_artifact(path: Path) -> bool:
    recorded = any((path / name).exists() for name in (MANIFEST, REPOSITORY_RECORD))
    return recorded or path.name in ROLES


def _below(path: Path) -> list[Path]:
    """Look where a workspace, or one digest of it, keeps its artifacts."""
    patterns = ["engines/*/*/", "repositories/*/"]
    if path.parent.name == "engines":
        patterns += [f"{role}/" for role in ROLES]
    found = [p for pattern in patterns for p in sorted(path.glob(pattern))]
    return [p for p in found if STAGING_MARK not in p.name]
