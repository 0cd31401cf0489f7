"""Installs the stand-ins of one TensorRT-LLM release, and a pair that they can build."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from releases import profile_for
from tiny_checkpoints import write_checkpoint

from specdeploy.core.release_profile import BuildFlag, ReleaseProfile, Scalar

TESTS = Path(__file__).parent
PROGRAM = """#!{python}
import sys
sys.path.insert(0, {tests!r})
from trtllm_stand_ins.program import main
main({tool!r}, {folder!r})
"""
CONFIG = """schema_version: 1
target: {{path: models/target, precision: bf16, tp: 2}}
draft: {{path: models/draft, precision: bf16}}
method: {method}
runtime: {{name: engine, trtllm_version: "{version}", trtllm_source: "{source}"}}
draft_length: 4
limits: {{max_seq_len: 512, max_batch_size: 2}}
"""


@dataclass(frozen=True)
class TrtllmTools:
    """Where the stand-ins are."""

    folder: Path
    version: str

    @property
    def bin(self) -> Path:
        """The folder of ``trtllm-build``, for PATH."""
        return self.folder / "bin"

    @property
    def source(self) -> Path:
        """The folder that the sources are in."""
        return self.folder / "TensorRT-LLM"

    @property
    def site(self) -> Path:
        """The folder that tells Python which version is installed."""
        return self.folder / "site"

    def trouble(self, tool: str, how: str, *, where: str = "") -> None:
        """Make one tool go wrong; only on paths that have ``where`` in them."""
        told = {"tool": tool, "how": how, "where": where}
        (self.folder / "trouble.json").write_text(json.dumps(told))

    def behave(self) -> None:
        """Make every tool work again."""
        (self.folder / "trouble.json").unlink(missing_ok=True)

    def write_pair(self, folder: Path, *, method: str = "draft_target") -> Path:
        """Write two checkpoints and ``specdeploy.yaml``; return the folder."""
        write_checkpoint(folder / "models/target", layers=2)
        write_checkpoint(folder / "models/draft", seed=1)
        text = CONFIG.format(method=method, version=self.version, source=self.source)
        (folder / "specdeploy.yaml").write_text(text)
        return folder

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find them."""
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "PYTHONPATH": str(self.site)}


def install(folder: Path, version: str) -> TrtllmTools:
    """Install the stand-ins of a release: the options of its profile and no other."""
    tools, profile = TrtllmTools(folder, version), profile_for(version)
    convert, quantize = profile.converters["llama"], profile.converters["quantize"]
    places = {
        "trtllm-build": tools.bin / "trtllm-build",
        "convert_checkpoint.py": tools.source / convert.path,
        "quantize.py": tools.source / quantize.path,
    }
    for tool, place in places.items():
        place.parent.mkdir(parents=True)
        text = PROGRAM.format(
            python=sys.executable, tests=str(TESTS), tool=tool, folder=str(folder)
        )
        place.write_text(text)
        place.chmod(0o755)
    metadata = tools.site / f"tensorrt_llm-{version}.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n")
    (folder / "tools.json").write_text(json.dumps(_options(profile, version)))
    return tools


def _options(profile: ReleaseProfile, version: str) -> dict[str, object]:
    scripts = {"convert_checkpoint.py": "llama", "quantize.py": "quantize"}
    options = {
        tool: {
            name: _of_default(default) for name, default in profile.converters[key].flags.items()
        }
        for tool, key in scripts.items()
    }
    build = {name: _of_flag(flag) for name, flag in profile.flags.items()}
    return {"version": version, "options": {**options, "trtllm-build": build}}


def _of_default(default: Scalar) -> dict[str, object]:
    return {"switch": default is False, "number": type(default) is int, "values": []}


def _of_flag(flag: BuildFlag) -> dict[str, object]:
    number = type(flag.default) is int and not flag.values
    return {"switch": flag.switch, "number": number, "values": flag.values}
