"""Constructs the adapters that workflows are given; each is imported when it is asked for."""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from specdeploy.client import Client
    from specdeploy.core.release_profile import ReleaseProfile
    from specdeploy.core.speed import Constants
    from specdeploy.events import Reporter
    from specdeploy.workflows import device_ports, ports, server_ports, tuning_ports
    from specdeploy.workflows.calibrate import CalibrateTools
    from specdeploy.workflows.check import CheckTools
    from specdeploy.workflows.doctor import DoctorTools
    from specdeploy.workflows.estimate import Estimator
    from specdeploy.workflows.serve import ServeTools
    from specdeploy.workflows.tune import TuneTools
    from specdeploy.workflows.workbench import Workbench


def config_files() -> ports.ConfigFiles:
    """Return the reader of ``specdeploy.yaml`` and ``tuning.json``."""
    from specdeploy.adapters.config_files import LocalConfigFiles  # noqa: PLC0415

    return LocalConfigFiles()


def checkpoint_reader() -> ports.CheckpointReader:
    """Return the reader of Hugging Face checkpoint directories."""
    from specdeploy.adapters.checkpoints import CheckpointFiles  # noqa: PLC0415

    return CheckpointFiles()


def tokenizer_reader() -> ports.TokenizerReader:
    """Return the reader of tokenizer files."""
    from specdeploy.adapters.tokenization import LocalTokenizers  # noqa: PLC0415

    return LocalTokenizers()


def weights_identifier() -> ports.WeightsIdentifier:
    """Return what tells whether two directories hold the same weights."""
    from specdeploy.adapters.weight_identity import SampledWeights  # noqa: PLC0415

    return SampledWeights()


def hub_resolver(*, weights: bool = False) -> ports.HubResolver:
    """Return the resolver of Hugging Face Hub ids; it downloads weights when asked to."""
    from specdeploy.adapters.hub import HubFiles  # noqa: PLC0415

    return HubFiles(weights=weights)


def server_launcher() -> server_ports.ServerLauncher:
    """Return what starts tritonserver on this machine."""
    from specdeploy.adapters.triton import TritonLauncher  # noqa: PLC0415

    return TritonLauncher(os.environ)


def server_records(workspace: Path) -> server_ports.ServerRecords:
    """Return a workspace's ``run/server.json``."""
    from specdeploy.adapters.server_records import LocalServerRecords  # noqa: PLC0415

    return LocalServerRecords(workspace)


def artifacts(workspace: Path) -> ports.Artifacts:
    """Return the reader of built artifacts; it remembers hashes in the workspace."""
    from specdeploy.adapters.artifact_files import LocalArtifacts  # noqa: PLC0415
    from specdeploy.adapters.hashing import FileHasher  # noqa: PLC0415
    from specdeploy.adapters.workspace import HASHES  # noqa: PLC0415

    return LocalArtifacts(FileHasher(workspace / HASHES))


def connect_to_server(url: str, *, timeout_s: float, model: str | None) -> Client:
    """Return a blocking client of the server at ``url``."""
    from specdeploy.client import Client  # noqa: PLC0415

    return Client(url, timeout_s=timeout_s, model=model)


def device_probe() -> device_ports.DeviceProbe:
    """Return the reader of this machine's GPUs."""
    from specdeploy.adapters.device_probe import NvmlProbe  # noqa: PLC0415

    return NvmlProbe(os.environ)


def doctor_tools() -> DoctorTools:
    """Return what looks at this machine."""
    from specdeploy.adapters.host_facts import LocalHost  # noqa: PLC0415
    from specdeploy.adapters.tools import InstalledTools  # noqa: PLC0415
    from specdeploy.workflows.doctor import DoctorTools  # noqa: PLC0415

    return DoctorTools(
        devices=device_probe(), host=LocalHost(os.environ), versions=InstalledTools()
    )


def memory_watch(
    *, interval_s: float = 0.1, pids: Collection[int] | None = None
) -> device_ports.MemoryWatch:
    """Return a watch of the visible GPUs' memory, all of it or that of ``pids``."""
    from specdeploy.adapters.device_probe import NvmlProbe  # noqa: PLC0415
    from specdeploy.adapters.memory_watch import NvmlMemoryWatch  # noqa: PLC0415

    return NvmlMemoryWatch(NvmlProbe(os.environ), interval_s=interval_s, pids=pids)


def clock() -> server_ports.Clock:
    """Return the machine's clock."""
    from specdeploy.adapters.clock import SystemClock  # noqa: PLC0415

    return SystemClock()


def serve_tools(
    workspace: Path, *, reporter: Reporter, stop: server_ports.StopSwitch | None = None
) -> ServeTools:
    """Return everything that serving in ``workspace`` works with; ``stop`` ends it."""
    from specdeploy.workflows.serve import NeverStopped, ServeTools  # noqa: PLC0415

    return ServeTools(
        launcher=server_launcher(),
        connect=connect_to_server,
        records=server_records(workspace),
        clock=clock(),
        reporter=reporter,
        stop=stop or NeverStopped(),
    )


def workbench(root: Path, *, reporter: Reporter, lock_timeout_s: float = 0.0) -> Workbench:
    """Return everything that a build in the workspace ``root`` works with."""
    from specdeploy.adapters.artifact_files import LocalArtifacts  # noqa: PLC0415
    from specdeploy.adapters.commands import LocalRunner  # noqa: PLC0415
    from specdeploy.adapters.hashing import FileHasher  # noqa: PLC0415
    from specdeploy.adapters.templates import StrictRenderer, template_root  # noqa: PLC0415
    from specdeploy.adapters.tools import InstalledTools  # noqa: PLC0415
    from specdeploy.adapters.workspace import HASHES, Workspace  # noqa: PLC0415
    from specdeploy.workflows.workbench import Workbench  # noqa: PLC0415

    hasher = FileHasher(root / HASHES)
    return Workbench(
        store=Workspace(root, reporter=reporter, lock_timeout_s=lock_timeout_s),
        artifacts=LocalArtifacts(hasher),
        hasher=hasher,
        tools=InstalledTools(),
        renderer=StrictRenderer(template_root()),
        runner=LocalRunner(reporter, environment=os.environ),
        reporter=reporter,
        clock=time.time,
        python=sys.executable,
        host=platform.node(),
    )


def release_profiles() -> tuple[ReleaseProfile, ...]:
    """Return what is known of each TensorRT-LLM release, from the oldest to the newest."""
    from specdeploy.adapters.release_files import read_release_profiles  # noqa: PLC0415

    return read_release_profiles()


def installed_trtllm() -> str | None:
    """Return the version of TensorRT-LLM on this machine; None where it is not installed."""
    from specdeploy.adapters.tools import InstalledTools  # noqa: PLC0415

    return InstalledTools().trtllm()


def fresh_artifacts() -> ports.Artifacts:
    """Return the reader of built artifacts; it hashes every file anew."""
    from specdeploy.adapters.artifact_files import LocalArtifacts  # noqa: PLC0415
    from specdeploy.adapters.hashing import FileHasher  # noqa: PLC0415

    return LocalArtifacts(FileHasher())


def check_tools() -> CheckTools:
    """Return what the check of a pair reads with."""
    from specdeploy.workflows.check import CheckTools  # noqa: PLC0415

    return CheckTools(
        checkpoints=checkpoint_reader(),
        tokenizers=tokenizer_reader(),
        weights=weights_identifier(),
        hub=hub_resolver(),
    )


def tuning_files() -> tuning_ports.TuningFiles:
    """Return the reader of acceptance and calibration files, and the writer of ``tuning.json``."""
    from specdeploy.adapters.tuning_files import LocalTuningFiles  # noqa: PLC0415

    return LocalTuningFiles()


def estimator(cwd: Path, constants: Constants) -> Estimator:
    """Return what predicts deployments; relative paths start in ``cwd``."""
    from specdeploy.adapters.silicon import SiliconTables  # noqa: PLC0415
    from specdeploy.workflows.estimate import EstimateTools, Estimator  # noqa: PLC0415

    tools = EstimateTools(
        checkpoints=checkpoint_reader(),
        hub=hub_resolver(),
        files=tuning_files(),
        kernels=SiliconTables(),
    )
    return Estimator(tools, cwd, constants)


def tune_tools() -> TuneTools:
    """Return what tuning reads with and writes with."""
    from specdeploy.adapters.release_files import read_release_profiles  # noqa: PLC0415
    from specdeploy.workflows.tune import TuneTools  # noqa: PLC0415

    return TuneTools(
        checkpoints=checkpoint_reader(),
        hub=hub_resolver(),
        devices=device_probe(),
        files=tuning_files(),
        releases=read_release_profiles,
    )


def calibrate_tools() -> CalibrateTools:
    """Return what calibrating reads with and writes with."""
    from specdeploy.adapters.measured_files import LocalMeasuredFiles  # noqa: PLC0415
    from specdeploy.workflows.calibrate import CalibrateTools  # noqa: PLC0415

    return CalibrateTools(
        files=LocalMeasuredFiles(), checkpoints=checkpoint_reader(), hub=hub_resolver()
    )
