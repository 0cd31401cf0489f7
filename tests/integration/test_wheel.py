"""What is installed from a wheel renders as a checkout does."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_a_wheel_brings_the_templates_and_finds_them(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, str(ROOT)],
        check=True,
    )
    (wheel,) = tmp_path.glob("specdeploy-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = "from specdeploy.adapters.templates import template_root; print(template_root())"
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path / "site",
        capture_output=True,
        text=True,
        check=True,
    )
    found = Path(result.stdout.strip())
    assert found == tmp_path / "site/specdeploy/templates"
    sources = {p.relative_to(ROOT / "templates") for p in (ROOT / "templates").rglob("*.j2")}
    assert sources <= {p.relative_to(found) for p in found.rglob("*.j2")}
