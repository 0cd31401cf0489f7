"""What is installed from a wheel has the data of a checkout and renders as it does."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_a_wheel_brings_templates_and_release_profiles_and_finds_them(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, str(ROOT)],
        check=True,
    )
    (wheel,) = tmp_path.glob("specdeploy-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = """
from specdeploy.adapters import release_files, templates
print(templates.template_root())
print(release_files.RELEASES, len(release_files.read_release_profiles()))
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path / "site",
        capture_output=True,
        text=True,
        check=True,
    )
    root, releases = result.stdout.splitlines()
    found = Path(root)
    assert found == tmp_path / "site/specdeploy/templates"
    count = len(list((ROOT / "specdeploy/releases").glob("*.yaml")))
    assert releases == f"{tmp_path / 'site/specdeploy/releases'} {count}"
    sources = {p.relative_to(ROOT / "templates") for p in (ROOT / "templates").rglob("*.j2")}
    assert sources <= {p.relative_to(found) for p in found.rglob("*.j2")}
