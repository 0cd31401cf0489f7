#!/usr/bin/env python3
"""Find or make the environment that the other scripts run in; prints its Python.

A script started inside an environment uses that one and changes nothing in it. Otherwise
`.venv` is made in the checkout and reused until pyproject.toml changes. Needs only
Python 3.10 to 3.12 and pip.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv"
STAMP = HOME / "specdeploy-environment.json"
# The wheel that carries tritonserver needs numpy 1, which has no build for Python 3.13.
VERSIONS = ("3.12", "3.11", "3.10")
# What an environment must be able to import to stand for an extra.
NEEDED_BY_EXTRA = {
    "reference": ("torch", "transformers", "safetensors", "pytriton"),
    "test": ("pytest", "pytest_cov", "hypothesis", "jsonschema", "mypy"),
}


def environment(extras: Sequence[str]) -> Path:
    """Return a Python that has specdeploy and the extras.

    Raises:
        SystemExit: none can be found or made; says why.
    """
    if sys.prefix != sys.base_prefix:
        return _running(extras)
    wanted = _wanted()
    if not STAMP.exists() or json.loads(STAMP.read_text()) != wanted:
        _make(wanted)
    return HOME / "bin" / "python"


def enter(extras: Sequence[str]) -> None:
    """Go on with the running script inside an environment that has the extras."""
    python = environment(extras)
    if python != Path(sys.executable):
        os.execv(python, [str(python), *sys.argv])  # noqa: S606 - an argument list, by design


def run(argv: Sequence[str | Path], **variables: str) -> int:
    """Run a command from the checkout's root and return its status."""
    return subprocess.run(
        [str(word) for word in argv], cwd=ROOT, env={**os.environ, **variables}, check=False
    ).returncode


def _running(extras: Sequence[str]) -> Path:
    modules = ["specdeploy", *(name for extra in extras for name in NEEDED_BY_EXTRA[extra])]
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        listed = ",".join(extras)
        raise SystemExit(
            f"the environment in {sys.prefix} lacks {', '.join(missing)}\n"
            f"run `pip install -e '.[{listed}]'` in it, or leave it and one will be made in .venv"
        )
    return Path(sys.executable)


def _wanted() -> dict[str, str]:
    project = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    return {"pyproject": project, "python": str(_base_python())}


def _base_python() -> Path:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here in VERSIONS:
        return Path(sys.executable)
    for version in VERSIONS:
        if found := shutil.which(f"python{version}"):
            return Path(found)
    raise SystemExit(f"Python {' or '.join(VERSIONS)} is needed; this is {here}")


def _make(wanted: dict[str, str]) -> None:
    """Make one environment that serves every script."""
    extras = ",".join(NEEDED_BY_EXTRA)
    print(f"installing specdeploy[{extras}] into {HOME} ...", file=sys.stderr)
    python = _base_python()
    shutil.rmtree(HOME, ignore_errors=True)
    # Some distributions split pip off venv; the pip of the base Python then installs into it.
    own_pip = _quiet([python, "-m", "venv", HOME]) == 0
    if not own_pip:
        shutil.rmtree(HOME, ignore_errors=True)
        _must([python, "-m", "venv", "--without-pip", HOME])
    made = HOME / "bin" / "python"
    pip: list[str | Path] = [made if own_pip else python, "-m", "pip"]
    if not own_pip:
        pip += ["--python", made]
    _must([*pip, "install", "--quiet", "--editable", f".[{extras}]"])
    STAMP.write_text(json.dumps(wanted))


def _quiet(argv: Sequence[str | Path]) -> int:
    return subprocess.run(
        [str(word) for word in argv],
        cwd=ROOT,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).returncode


def _must(argv: Sequence[str | Path]) -> None:
    # stdout is the caller's: this script's own result is one line.
    finished = subprocess.run(
        [str(word) for word in argv], cwd=ROOT, check=False, stdout=sys.stderr
    )
    if finished.returncode:
        words = " ".join(str(word) for word in argv)
        raise SystemExit(f"making .venv failed: `{words}` ended with {finished.returncode}")


if __name__ == "__main__":
    print(environment(sys.argv[1:] or ("reference", "test")))
