"""Every fact is judged for the runtime that is asked about, and every line has a remedy."""

from __future__ import annotations

import pytest

from specdeploy.core.devices import ComputeMode, GpuDevice, GpuProcess, HostMemory, Machine
from specdeploy.core.doctor import DoctorLine, DoctorQuestion, DoctorReport, examine
from specdeploy.core.hardware import GpuSpec, find_gpu
from specdeploy.core.host import ContainerFacts, DiskFacts, HostFacts, Limits, Lookup
from specdeploy.errors import MissingToolError
from specdeploy.units import GIB, KIB, MIB

NO_DRIVER = Machine(error="no driver", hint="install it")
RUNTIMES = ["reference", "engine", "llmapi"]


def a_host(**facts: object) -> HostFacts:
    """Return a machine that lacks nothing."""
    return HostFacts.model_validate(
        {
            "system": "Linux 6.8 x86_64",
            "python": "3.11.7",
            "packages": {"tensorrt_llm": "1.0.0"},
            "programs": {"trtllm-build": "/bin/trtllm-build", "mpirun": "/bin/mpirun"},
            "server": Lookup(found="/opt/tritonserver/bin/tritonserver"),
            "backends": ["python", "tensorrtllm"],
            "container": ContainerFacts(inside=True),
            "disk": DiskFacts(path="/w", free_bytes=200 * GIB, writable=True),
            "shared_memory_bytes": 8 * GIB,
            "memory": HostMemory(total_bytes=64 * GIB, available_bytes=60 * GIB),
            "limits": Limits(open_files=65_536, locked_bytes=None, stack_bytes=64 * MIB),
            **facts,
        }
    )


def a_gpu(**facts: object) -> GpuDevice:
    sizes = {"total_bytes": 40 * GIB, "free_bytes": 39 * GIB}
    return GpuDevice.model_validate(
        {"index": 0, "uuid": "GPU-a", "name": "NVIDIA A100", "sm": 80, **sizes, **facts}
    )


ONE_GPU = Machine(driver_version="550.54", cuda_version="12.4", devices=[a_gpu()])


def judged(
    runtime: str = "engine",
    *,
    machine: Machine = ONE_GPU,
    gpu: GpuSpec | None = None,
    tools: Lookup | None = None,
    **host: object,
) -> DoctorReport:
    return examine(
        DoctorQuestion(
            runtime=runtime,
            host=a_host(**host),
            machine=machine,
            build_tools=tools or Lookup(found="torch 2.13.0"),
            gpu=gpu,
        )
    )


def line(report: DoctorReport, name: str) -> DoctorLine:
    [found] = [line for line in report.lines if line.name == name]
    return found


def worse(report: DoctorReport) -> dict[str, str]:
    return {line.name: line.status for line in report.lines if line.status != "ok"}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_machine_that_lacks_nothing_is_ready(runtime: str) -> None:
    report = judged(runtime)
    assert (report.ready, worse(report)) == (True, {})
    report.raise_if_missing()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_line_has_a_remedy(runtime: str) -> None:
    poor = judged(
        runtime,
        machine=NO_DRIVER,
        server=Lookup(error="none"),
        packages={},
        programs={},
        tools=Lookup(error="no torch"),
    )
    assert all(line.remedy for report in (judged(runtime), poor) for line in report.lines)


def test_what_is_missing_is_named_with_its_remedy() -> None:
    report = judged(packages={}, programs={"mpirun": "/bin/mpirun"})
    assert not report.ready
    assert worse(report) == {"TensorRT-LLM": "missing", "trtllm-build": "missing"}
    with pytest.raises(MissingToolError, match=r"engine.*: TensorRT-LLM, trtllm-build") as caught:
        report.raise_if_missing()
    assert "trtllm-build: run inside nvcr.io" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("python", "status"),
    [("3.9.18", "missing"), ("3.10.0", "ok"), ("3.13.1", "ok"), ("3.14.0", "missing")],
)
def test_the_versions_of_python_that_work_are_known(python: str, status: str) -> None:
    assert line(judged(python=python), "Python").status == status


@pytest.mark.parametrize("runtime", ["reference", "llmapi"])
def test_programs_of_the_engine_runtime_are_not_asked_of_others(runtime: str) -> None:
    assert worse(judged(runtime, programs={})) == {}


def test_tensorrt_llm_is_not_asked_of_the_reference_runtime() -> None:
    assert "TensorRT-LLM" not in [line.name for line in judged("reference", packages={}).lines]


def test_mpirun_is_only_needed_for_several_gpus() -> None:
    report = judged(programs={"trtllm-build": "/bin/trtllm-build"})
    assert (report.ready, worse(report)) == (True, {"mpirun": "warning"})


def test_a_tool_that_is_missing_keeps_its_own_hint() -> None:
    report = judged("reference", tools=Lookup(error="no torch", hint="pip install torch"))
    assert line(report, "build tools") == DoctorLine(
        name="build tools", status="missing", found="no torch", remedy="pip install torch"
    )


def test_a_server_that_is_missing_has_no_backends_to_judge() -> None:
    report = judged(server=Lookup(error="no tritonserver"))
    assert worse(report) == {"tritonserver": "missing"}


@pytest.mark.parametrize(
    ("runtime", "backends", "found"),
    [
        ("engine", ["python"], "no tensorrtllm"),
        ("engine", [], "no python and no tensorrtllm"),
        ("llmapi", ["onnxruntime"], "no python"),
    ],
)
def test_a_server_without_the_runtimes_backends_is_not_enough(
    runtime: str, backends: list[str], found: str
) -> None:
    told = line(judged(runtime, backends=backends), "Triton backends")
    assert (told.status, told.found) == ("missing", found)


def test_a_gpu_is_told_with_what_a_plan_starts_from() -> None:
    report = judged(machine=Machine(devices=[a_gpu(wsl=True, notes=["shared with Windows"])]))
    assert line(report, "GPU 0").found == (
        "NVIDIA A100, SM 8.0, 39,936 MiB of 40,960 MiB free, plans start from 31,744 MiB; "
        "shared with Windows"
    )
    assert [gpu.bytes for gpu in report.planning] == [31 * GIB]


def test_the_driver_is_told_with_its_versions() -> None:
    assert line(judged(), "NVIDIA driver").found == "550.54, CUDA up to 12.4, 1 visible"
    untold = line(judged(machine=Machine(devices=[a_gpu()])), "NVIDIA driver").found
    assert untold == "version not told, CUDA up to not told, 1 visible"


@pytest.mark.parametrize(
    ("mode", "processes"),
    [("prohibited", []), ("exclusive_process", [GpuProcess(pid=5)])],
)
def test_a_gpu_that_refuses_new_processes_is_a_warning(
    mode: ComputeMode, processes: list[GpuProcess]
) -> None:
    device = a_gpu(compute_mode=mode, processes=processes, notes=["closed"])
    told = line(judged(machine=Machine(devices=[device])), "GPU 0")
    assert (told.status, told.found) == ("warning", "NVIDIA A100, SM 8.0; closed")
    assert "nvidia-smi -c DEFAULT" in told.remedy


def test_a_gpu_whose_memory_is_not_told_is_a_warning() -> None:
    report = judged(machine=Machine(devices=[a_gpu(sm=None, free_bytes=None)]))
    told = line(report, "GPU 0")
    assert (told.status, told.found) == ("warning", "NVIDIA A100")
    assert "--gpu" in told.remedy
    assert report.planning == []


def test_notes_about_the_machine_are_warnings() -> None:
    machine = ONE_GPU.evolve(notes=["the order is uncertain"])
    assert line(judged(machine=machine), "GPUs").status == "warning"


@pytest.mark.parametrize("runtime", ["engine", "llmapi"])
def test_without_a_gpu_tensorrt_llm_cannot_run(runtime: str) -> None:
    report = judged(runtime, machine=NO_DRIVER)
    told = line(report, "GPU")
    assert (told.status, told.found) == ("missing", "no driver")
    assert told.remedy == ("install it; to plan for another machine, name its GPU with --gpu NAME")
    assert report.planning == []


def test_without_a_gpu_the_reference_runtime_runs() -> None:
    told = line(judged("reference", machine=Machine(error="no driver")), "GPU")
    assert (told.status, told.found) == ("ok", "no driver; the reference runtime needs none")
    assert told.remedy.startswith("to plan for another machine")


@pytest.mark.parametrize(("runtime", "status"), [("engine", "warning"), ("reference", "ok")])
def test_without_a_gpu_plans_go_on_from_the_named_one(runtime: str, status: str) -> None:
    report = judged(runtime, machine=NO_DRIVER, gpu=find_gpu("custom:81559:9.0"))
    told = line(report, "GPU")
    assert told.status == status
    assert told.found == ("no driver; plans go on from custom:81559:9.0, 81,559 MiB, as named")
    assert report.ready
    assert [gpu.bytes for gpu in report.planning] == [81_559 * MIB]


def test_a_named_gpu_stands_before_those_that_are_here() -> None:
    report = judged(gpu=find_gpu("t4"))
    assert line(report, "plans").found == (
        "start from t4, 15,360 MiB, as named, not from what is here"
    )
    assert [gpu.name for gpu in report.planning] == ["t4"]
    assert "plans" not in [told.name for told in judged().lines]


DOCKER = ContainerFacts(inside=False, runtime="docker 28.2.2", answers=True, toolkit="1.17.8")


@pytest.mark.parametrize(
    ("facts", "found", "status"),
    [
        (DOCKER, "docker 28.2.2, NVIDIA Container Toolkit 1.17.8", "ok"),
        (
            DOCKER.evolve(toolkit=None),
            "docker 28.2.2, without the NVIDIA Container Toolkit",
            "warning",
        ),
        (DOCKER.evolve(answers=False), "docker 28.2.2, which does not answer", "warning"),
        (ContainerFacts(inside=False), "neither docker nor podman", "warning"),
        (ContainerFacts(inside=True), "this is one", "ok"),
    ],
)
def test_what_could_run_a_container_is_told(facts: ContainerFacts, found: str, status: str) -> None:
    told = line(judged(container=facts), "containers")
    assert (told.found, told.status) == (found, status)
    assert line(judged("reference", container=facts), "containers").status == "ok"


def test_a_workspace_that_cannot_be_written_is_missing() -> None:
    report = judged(disk=DiskFacts(path="/w", free_bytes=200 * GIB, writable=False))
    told = line(report, "workspace")
    assert (told.status, told.found) == ("missing", "/w cannot be written")


@pytest.mark.parametrize(
    ("runtime", "free", "status"),
    [
        ("engine", 100 * GIB, "ok"),
        ("engine", 99 * GIB, "warning"),
        ("llmapi", 20 * GIB, "ok"),
        ("reference", 2 * GIB, "ok"),
        ("reference", GIB, "warning"),
        ("reference", 255 * MIB, "missing"),
        ("reference", None, "warning"),
    ],
)
def test_the_disk_must_hold_what_the_runtime_makes(
    runtime: str, free: int | None, status: str
) -> None:
    report = judged(runtime, disk=DiskFacts(path="/w", free_bytes=free, writable=True))
    assert line(report, "disk").status == status


@pytest.mark.parametrize(
    ("size", "status", "found"),
    [
        (GIB, "ok", "1,024 MiB"),
        (64 * MIB, "warning", "64 MiB, 1,024 MiB are usual"),
        (63 * KIB, "missing", "0 MiB, 1,024 MiB are usual"),
        (None, "warning", "not known"),
    ],
)
def test_a_container_with_dockers_default_shared_memory_is_warned_about(
    size: int | None, status: str, found: str
) -> None:
    told = line(judged(shared_memory_bytes=size), "shared memory")
    assert (told.status, told.found) == (status, found)
    assert "--ipc=host" in told.remedy


def test_little_host_memory_is_a_warning() -> None:
    report = judged(memory=HostMemory(total_bytes=GIB, available_bytes=GIB))
    assert worse(report) == {"host memory": "warning"}


def test_limits_are_judged_for_what_computes_on_a_gpu() -> None:
    low = Limits(open_files=1024, locked_bytes=8 * MIB, stack_bytes=8 * MIB)
    assert worse(judged("reference", limits=low)) == {"open files": "warning"}
    report = judged(limits=low)
    assert worse(report) == dict.fromkeys(["open files", "locked memory", "stack"], "warning")
    assert line(report, "locked memory").found == "8,388,608, unlimited is usual"
    assert line(report, "open files").found == "1,024, 4,096 is usual"
    assert "--ulimit stack=67108864" in line(report, "stack").remedy


def test_what_is_unlimited_is_enough() -> None:
    none = Limits(open_files=None, locked_bytes=None, stack_bytes=None)
    report = judged(limits=none)
    assert worse(report) == {}
    assert line(report, "stack").found == "unlimited"
