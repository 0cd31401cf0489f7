"""The short, commented ``specdeploy.yaml`` that a user starts from."""

from __future__ import annotations

import json
from typing import Final

from pydantic import Field

from specdeploy.core.record import Document
from specdeploy.core.repository import Method

_TEMPLATE: Final = """\
# A pair of models served with speculative decoding. `specdeploy schema` describes every
# setting, `specdeploy config` shows what takes effect. Paths are relative to this file.
schema_version: 1

target:
  path: {target}
{draft}
# draft_target: a small draft model proposes; ngram: the prompt does; none: no speculation.
method: {method}

runtime:
  name: reference   # real models on a real Triton server, no GPU needed
  shape: engine     # the repository to imitate: engine or llmapi

draft_length: auto  # tokens proposed per step

limits:
  max_batch_size: auto  # requests held at once
  max_seq_len: auto     # prompt + output tokens of one request
"""
_DRAFT: Final = """
draft:
  path: {draft}
"""


class StartedFile(Document):
    """What ``specdeploy init --json`` prints."""

    file: str = Field(description="Absolute path of the file that was written.")
    target: str
    draft: str | None
    method: Method


def starter_file(*, target: str, draft: str | None, method: Method) -> str:
    """Return the text of the file; paths are written as given."""
    return _TEMPLATE.format(
        target=_quoted(target),
        draft=_DRAFT.format(draft=_quoted(draft)) if draft else "",
        method=method,
    )


def _quoted(text: str) -> str:
    """Return a YAML scalar: JSON's quoting, and YAML's escapes for what nobody can see."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
