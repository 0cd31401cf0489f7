"""From a file, flags, GPUs and acceptance to the question, and to the files that are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from configs import FakeCheckpoints, FakeHub, load
from planning_models import model_named
from releases import profiles

from specdeploy.adapters.tuning_files import LocalTuningFiles
from specdeploy.core.acceptance import AcceptanceProfile, CategoryAcceptance
from specdeploy.core.devices import GpuDevice, Machine
from specdeploy.core.speed import Calibration
from specdeploy.core.speed.calibration import CalibrationErrors
from specdeploy.core.tuning import TuningReport
from specdeploy.errors import ConfigError, InfeasiblePlanError, MissingToolError
from specdeploy.workflows.tune import TuneRequest, TuneTools, keep, tune_pair

GIB = 1024**3
PAIR = "target: {path: t, precision: fp8}\ndraft: {path: d}\n"
ONE = f"{PAIR}hardware: {{gpu: h200, count: 1}}\n"


class Gpus:
    """A machine with the given GPUs."""

    def __init__(self, *devices: GpuDevice) -> None:
        self.machine = Machine(
            devices=list(devices), error=None if devices else "there is no NVIDIA driver"
        )

    def probe(self) -> Machine:
        return self.machine


def a_device(index: int, *, free_gib: int = 130, name: str = "NVIDIA H200") -> GpuDevice:
    return GpuDevice(
        index=index,
        uuid=f"GPU-{index}",
        name=name,
        sm=90,
        total_bytes=140 * GIB,
        free_bytes=free_gib * GIB,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the directories of a target and two drafts."""
    for name in ("t", "d", "e"):
        (tmp_path / name).mkdir()
    return tmp_path


def tuned(
    folder: Path,
    text: str,
    *,
    gpus: Gpus | None = None,
    flags: list[tuple[str, str, str]] | None = None,
    **request: object,
) -> TuningReport:
    tools = TuneTools(
        checkpoints=FakeCheckpoints(
            t=model_named("Llama-3.1-70B"),
            d=model_named("Llama-3.2-1B"),
            e=model_named("Llama-3.1-8B"),
        ),
        hub=FakeHub(),
        devices=gpus or Gpus(),
        files=LocalTuningFiles(),
        releases=profiles,
    )
    loaded = load(folder, text, flags=flags or ())
    return tune_pair(TuneRequest(loaded, folder, **request), tools=tools)  # type: ignore[arg-type]


def test_a_file_with_a_gpu_and_an_acceptance_is_enough(folder: Path) -> None:
    report = tuned(folder, ONE, acceptance=("0.7",))
    assert (report.verdict, report.choice.draft, report.gpu) == ("speculate", "d", "h200-sxm")
    assert report.acceptance_source == "d: given"


def test_without_a_gpu_the_error_says_to_name_one(folder: Path) -> None:
    with pytest.raises(MissingToolError, match="no NVIDIA driver") as caught:
        tuned(folder, PAIR, acceptance=("0.7",))
    assert caught.value.hint is not None
    assert "--gpu NAME" in caught.value.hint


def test_the_gpus_here_are_used_and_the_fullest_decides(folder: Path) -> None:
    gpus = Gpus(a_device(0, free_gib=130), a_device(1, free_gib=40), a_device(2, free_gib=120))
    report = tuned(folder, f"{PAIR}hardware: {{count: 2}}\n", gpus=gpus, acceptance=("0.7",))
    assert report.gpu_count == 2
    assert any("2 x NVIDIA H200 of this machine, 122,880 MiB" in s for s in report.assumptions)
    assert report.memory.gpus[0].total_bytes < 120 * GIB


def test_what_other_processes_hold_is_a_line_of_its_own(folder: Path) -> None:
    device = a_device(0, free_gib=130).evolve(used_bytes=9 * GIB)
    report = tuned(folder, PAIR, gpus=Gpus(device), acceptance=("0.7",))
    lines = {line.name: line.bytes for line in report.memory.gpus[0].components}
    assert (lines["other processes"], lines["driver reserve"]) == (9 * GIB, GIB)


def test_more_gpus_than_there_are_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"hardware.count is 3 .*there are 1 GPUs here"):
        tuned(folder, f"{PAIR}hardware: {{count: 3}}\n", gpus=Gpus(a_device(0)))


def test_a_card_that_no_table_has_is_planned_with_its_own_memory(folder: Path) -> None:
    report = tuned(folder, PAIR, gpus=Gpus(a_device(0, name="NVIDIA X1")), acceptance=("0.7",))
    assert report.gpu == f"custom:{140 * 1024}:9.0"


def test_a_card_without_a_known_capability_is_refused(folder: Path) -> None:
    odd = a_device(0, name="NVIDIA X1").evolve(sm=None)
    with pytest.raises(ConfigError, match="unknown GPU"):
        tuned(folder, PAIR, gpus=Gpus(odd))


def test_without_a_count_the_fewest_gpus_that_will_do_are_taken(folder: Path) -> None:
    text = "target: {path: t, precision: bf16}\ndraft: {path: d}\nhardware: {gpu: a100}\n"
    report = tuned(folder, text, acceptance=("0.7",))
    assert report.gpu_count == 2
    assert any("2 x a100-80gb-sxm, the fewest that will do" in said for said in report.assumptions)


def test_when_no_number_of_gpus_will_do_it_is_said(folder: Path) -> None:
    text = "target: {path: t, precision: bf16}\ndraft: {path: d}\nhardware: {gpu: t4}\n"
    with pytest.raises(InfeasiblePlanError, match="nothing fits on 8 x t4"):
        tuned(folder, text)
    with pytest.raises(ConfigError, match="tp 16 is above 8"):
        tuned(folder, text, flags=[("--tp", "target.tp", "16")])


def test_a_target_alone_is_tuned_for_prompt_lookup(folder: Path) -> None:
    text = "target: {path: t, precision: fp8}\nhardware: {gpu: h200}\n"
    report = tuned(folder, text, acceptance=("0.4",))
    assert (report.choice.method, report.acceptance_source) == ("ngram", "ngram: given")


@pytest.mark.parametrize("extra", ["method: none\n", "draft_length: 0\n"])
def test_speculation_that_is_switched_off_is_not_searched(folder: Path, extra: str) -> None:
    report = tuned(folder, f"{ONE}{extra}", acceptance=())
    assert (report.verdict, report.reason) == ("off", "no way to draft is feasible")


def test_a_method_that_is_set_is_the_only_one(folder: Path) -> None:
    report = tuned(folder, f"{ONE}method: draft_target\n", acceptance=("0.7",))
    assert "no acceptance known" not in report.rejected
    lookup = tuned(folder, f"{ONE}method: ngram\n", acceptance=("0.4",))
    assert lookup.choice.method == "ngram"


def test_several_drafts_are_compared_by_name(folder: Path) -> None:
    words = ("d=0.6", "e=0.9", "ngram=0.1")
    report = tuned(folder, ONE, acceptance=words, drafts=(str(folder / "e"),))
    assert report.acceptance_source == "d: given; e: given; ngram: given"
    assert report.choice.draft in {"d", "e"}


def test_two_drafts_of_one_name_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="same directory name"):
        tuned(folder, ONE, drafts=(str(folder / "d"),))


def test_an_acceptance_of_nobody_is_refused_with_the_names(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no way to draft called 'dd'") as caught:
        tuned(folder, ONE, acceptance=("dd=0.7",))
    assert caught.value.hint == "there are d, ngram"


def test_two_acceptances_of_one_way_to_draft_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="that of d is given already"):
        tuned(folder, ONE, acceptance=("0.7", "d=0.8"))


def test_a_measured_profile_is_read_and_mixed(folder: Path) -> None:
    profile = AcceptanceProfile(
        categories={"code": CategoryAcceptance(per_position=[0.9], prompts=40)}
    )
    (folder / "acceptance.json").write_text(profile.model_dump_json())
    text = f"{ONE}workload: {{categories: {{code: 1}}}}\n"
    report = tuned(folder, text, acceptance=("acceptance.json",))
    assert report.acceptance_source == "d: measured"
    assert [found.category for found in report.sensitivity] == ["code"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ('{"categories": {"code": {"per_position": [2]}}}', "less than or equal to 1"),
        ('{"schema_version": 9, "categories": {}}', "schema_version 9 is not supported"),
    ],
)
def test_a_broken_profile_is_refused(folder: Path, content: str, message: str) -> None:
    (folder / "a.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        tuned(folder, ONE, acceptance=("a.json",))


def test_a_preset_is_named_and_warned_of(folder: Path) -> None:
    report = tuned(folder, ONE, acceptance=("preset:eagle-vicuna-7b",))
    assert report.acceptance_source == "d: preset:eagle-vicuna-7b"
    assert any("another pair" in warning for warning in report.warnings)


def test_a_calibration_moves_the_prediction(folder: Path) -> None:
    errors = CalibrationErrors(tpot=0.2)
    slower = Calibration(values={"read_efficiency": 0.5}, points=9, before=errors, after=errors)
    (folder / "c.json").write_text(slower.model_dump_json())
    plain = tuned(folder, ONE, acceptance=("0.7",))
    slow = tuned(folder, ONE, acceptance=("0.7",), calibration=Path("c.json"))
    assert slow.choice.e2e_ms > plain.choice.e2e_ms


def test_what_was_measured_wins_at_its_load(folder: Path) -> None:
    load = {"concurrency": 8, "baseline": 50.0, "speculative": 45.0}
    (folder / "m.json").write_text(json.dumps({"loads": [load]}))
    report = tuned(folder, ONE, acceptance=("0.7",), measured=Path("m.json"))
    assert report.verdict == "off"
    assert "measured at 8 requests in flight" in report.reason


def test_assumptions_of_the_speed_model_are_passed_on(folder: Path) -> None:
    assert any("BLS" in said for said in tuned(folder, ONE, acceptance=("0.7",)).assumptions)


@pytest.mark.parametrize(
    ("runtime", "meaning"),
    [
        ("runtime: {shape: llmapi, trtllm_version: 1.2.1}", "lower"),
        ("runtime: {shape: llmapi, trtllm_version: 1.3.0rc20}", "upper"),
        ("runtime: {shape: llmapi, trtllm_version: 1.0.0}", "absent"),
        ("runtime: {shape: llmapi}", "unknown"),
        ("runtime: {shape: engine, trtllm_version: 1.2.1}", "absent"),
    ],
)
def test_the_schedule_is_in_the_words_of_the_chosen_release(
    folder: Path, runtime: str, meaning: str
) -> None:
    schedule = tuned(folder, f"{ONE}{runtime}\n", acceptance=("0.7",)).schedule
    assert schedule is not None
    assert schedule.meaning == meaning
    assert (schedule.draft_len_schedule is not None) == (meaning in {"lower", "upper"})


def test_an_unknown_release_is_refused(folder: Path) -> None:
    text = f"{ONE}runtime: {{shape: llmapi, trtllm_version: 7.0.0}}\n"
    with pytest.raises(ConfigError, match=r"7\.0\.0 is not known"):
        tuned(folder, text, acceptance=("0.7",))


def test_what_a_flag_fixes_is_not_searched(folder: Path) -> None:
    flags = [
        ("--draft-length", "draft_length", "3"),
        ("--max-batch-size", "limits.max_batch_size", "16"),
        ("--max-seq-len", "limits.max_seq_len", "4000"),
        ("--tp", "target.tp", "1"),
    ]
    choice = tuned(folder, ONE, flags=flags, acceptance=("0.7",)).choice
    assert (choice.draft_length, choice.max_batch_size, choice.max_seq_len) == (3, 16, 4000)


def test_a_limit_of_the_time_per_token_is_explained(folder: Path) -> None:
    text = f"{ONE}workload: {{slo: {{tpot_ms: 60.0}}}}\n"
    report = tuned(folder, text, acceptance=("0.7",))
    assert any("TPOT p95" in said for said in report.assumptions)


def test_what_no_build_takes_over_is_told(folder: Path) -> None:
    text = f"{PAIR}hardware: {{gpu: h200, count: 4}}\n"
    warned = tuned(folder, text, acceptance=("0.7",)).warnings[-1]
    assert "write the rest into the file: target.tp: 4, " in warned
    assert "draft.kv_dtype: fp8" in warned
    assert "method" not in warned
    other = tuned(folder, ONE, acceptance=("e=0.9",), drafts=(str(folder / "e"),))
    assert "draft.path: the one called e" in other.warnings[-1]
    lookup = tuned(folder, ONE, acceptance=("ngram=0.9",))
    assert "write the rest into the file: method: ngram" in lookup.warnings[-1]


def test_a_choice_that_the_file_says_already_needs_nothing_written(folder: Path) -> None:
    text = ONE.replace("path: d", "path: d, kv_dtype: fp8")
    assert tuned(folder, text, acceptance=("0.7",)).warnings == []
    off = tuned(folder, ONE, acceptance=("0.0",))
    assert (off.verdict, off.warnings) == ("off", [])


def test_the_report_is_written_whole_with_its_plots(folder: Path) -> None:
    report = tuned(folder, ONE, acceptance=("0.7",))
    workspace = folder / "new" / "workspace"
    path = keep(report, {"tuning.svg": "<svg/>"}, workspace, LocalTuningFiles())
    assert sorted(file.name for file in workspace.iterdir()) == ["tuning.json", "tuning.svg"]
    assert TuningReport.model_validate(json.loads(path.read_text())) == report
    again = keep(report, {}, workspace, LocalTuningFiles())
    assert again.read_text() == path.read_text()


def test_a_workspace_that_cannot_be_written_is_named(folder: Path) -> None:
    report = tuned(folder, ONE, acceptance=("0.7",))
    (folder / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        keep(report, {}, folder / "file" / "workspace", LocalTuningFiles())
    (folder / "w" / "tuning.json").mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot write"):
        keep(report, {}, folder / "w", LocalTuningFiles())
    assert [file.name for file in (folder / "w").iterdir()] == ["tuning.json"]


def test_a_share_of_total_memory_is_what_the_plan_keeps_to(folder: Path) -> None:
    report = tuned(folder, ONE, acceptance=("0.7",), memory_limit=0.7)
    assert report.memory.limit == "0.7 of total memory"
    with pytest.raises(InfeasiblePlanError):
        tuned(folder, ONE, acceptance=("0.7",), memory_limit=0.3)
    with pytest.raises(ConfigError, match="is not above 0 and at most 1"):
        tuned(folder, ONE, memory_limit=1.5)


def test_a_gpu_without_the_precision_is_warned_of_once(folder: Path) -> None:
    text = ONE.replace("h200", "a100-80gb-sxm")
    for flags in ((), [("--method", "method", "ngram")]):
        warnings = tuned(folder, text, flags=list(flags)).warnings
        assert sum("the target in fp8 needs SM 8.9" in told for told in warnings) == 1
