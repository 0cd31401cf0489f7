"""The files of docs/schema, made from the records; `scripts/golden` writes and compares them."""

from __future__ import annotations

import json

from specdeploy.schemas import SCHEMAS, json_schema


def schema_files() -> dict[str, str]:
    """Return the text of every schema file by its path in the checkout."""
    return {
        f"docs/schema/{name}.json": json.dumps(json_schema(name), indent=2) + "\n"
        for name in SCHEMAS
    }
