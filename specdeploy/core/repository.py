"""A Triton model repository: as a plan, and as a record of what was written."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field

from specdeploy.core.record import Document, Record, digest_json

Shape = Literal["engine", "llmapi"]
Method = Literal["none", "draft_target", "ngram"]


class FileToRender(Record):
    """A text file made from a Jinja template.

    ``template`` is relative to the templates folder, ``path`` to the repository. Every
    variable of the template is in ``context``; a value of None is a mistake.
    """

    path: str
    template: str
    context: dict[str, object]


class FileToCopy(Record):
    """A file copied as it is (the Python of a Triton model)."""

    path: str
    source: str


class RepositoryPlan(Record):
    """Everything needed to write a repository; paths inside it are relative."""

    shape: Shape
    method: Method
    models: list[str]
    entry_model: str
    streaming: bool
    draft_length: int
    renders: list[FileToRender]
    copies: list[FileToCopy]
    directories: list[str] = Field(
        default=[], description="Empty version folders that Triton wants (an ensemble's)."
    )
    absolute_paths: list[str] = Field(
        default=[], description="Paths outside the repository that its files name."
    )
    server_paths: list[str] = Field(
        default=[], description="Those of the server's own container, which is elsewhere."
    )
    environment: dict[str, str] = Field(
        default={}, description="Variables that the server process needs (thread counts)."
    )
    notes: list[str] = Field(default=[], description="What to know of the files, in words.")
    lossy: list[str] = Field(
        default=[], description="Settings with which answers are not the target's own."
    )
    serve_command: list[str] = Field(
        default=[],
        description="Serves the same without Triton; {repository} is where the files lie.",
    )


class FileEntry(Record):
    """A file of an artifact, by content."""

    path: str
    size_bytes: int
    sha256: str


class ModelRepository(Document):
    """``repository.json``: what was rendered, written last into the repository's root."""

    runtime: str
    shape: Shape
    method: Method
    models: list[str]
    entry_model: str
    streaming: bool
    draft_length: int
    plan_digest: str
    tuning_digest: str | None = None
    absolute_paths: list[str] = []
    environment: dict[str, str] = {}
    files: list[FileEntry]

    def content_digest(self) -> str:
        """Digest of everything that this record says, except of its own digest."""
        return digest_json(self.model_dump(mode="json", exclude={"plan_digest"}))


def file_entry(path: str, content: bytes) -> FileEntry:
    """Describe a file by its content."""
    digest = hashlib.sha256(content).hexdigest()
    return FileEntry(path=path, size_bytes=len(content), sha256=digest)
