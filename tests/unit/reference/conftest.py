from __future__ import annotations

from pathlib import Path

import pytest
from reference_pairs import write_pair


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random pair: a folder with ``target`` and ``draft``."""
    return write_pair(tmp_path_factory.mktemp("pair"))
