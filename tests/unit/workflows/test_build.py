"""Building: planned as a value, performed whole, reused by content."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from build_support import FakeRuntime, Setup

from specdeploy.core.artifacts import BuildReport
from specdeploy.core.deployment import Deployment
from specdeploy.errors import ArtifactError, CommandFailedError, ConfigError
from specdeploy.workflows.build import BuildRequest, Part, build, preview
from specdeploy.workflows.ports import Store
from specdeploy.workflows.workbench import Workbench


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def request(
    setup: Setup, deployment: Deployment | None = None, only: Part | None = None
) -> BuildRequest:
    return BuildRequest(deployment or setup.deployment(), FakeRuntime(), only)


def built(setup: Setup, **changes: object) -> BuildReport:
    return build(request(setup, setup.deployment(**changes)), setup.bench())


def actions(report: BuildReport) -> dict[str, str]:
    found: dict[str, str] = {step.role: step.action for step in report.steps}
    if report.repository is not None:
        found["repository"] = report.repository.action
    return found


def everything_below(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_a_first_build_makes_both_engines_and_the_repository(setup: Setup) -> None:
    report = built(setup)
    assert actions(report) == {"target": "build", "draft": "build", "repository": "render"}
    for step in report.steps:
        manifest = json.loads((Path(step.output) / "manifest.json").read_text())
        assert manifest["plan_digest"] == step.plan_digest
        assert [o["path"] for o in manifest["outputs"]] == ["config.json", "model.safetensors"]
    config = (setup.workspace / "repository/leaf/config.pbtxt").read_text()
    assert report.steps[0].output in config
    assert (setup.workspace / "repository/ensemble/1").is_dir()
    record = json.loads((setup.workspace / "repository/repository.json").read_text())
    assert [f["path"] for f in record["files"]] == ["leaf/1/model.py", "leaf/config.pbtxt"]


def test_the_manifest_tells_inputs_argv_tools_and_annotations(setup: Setup) -> None:
    output = Path(built(setup).steps[0].output)
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["schema_version"] == 1
    assert manifest["argv"][-1] == "--to={output}"
    assert manifest["tools"] == {"converter": "1"}
    assert manifest["annotations"] == {
        "built_at": "2023-11-14T22:13:20+00:00",
        "host": "here",
        "seconds": 0.0,
    }
    assert [
        (Path(i["path"]).name, i["size_bytes"], len(i["sha256"])) for i in manifest["inputs"]
    ] == [
        ("config.json", 18, 64),
        ("model.safetensors", 17, 64),
    ]


def test_a_second_build_runs_nothing(setup: Setup) -> None:
    built(setup)
    setup.runner.commands.clear()
    before = everything_below(setup.workspace)
    assert set(actions(built(setup)).values()) == {"reuse"}
    assert setup.runner.commands == []
    assert everything_below(setup.workspace) == before


class FullDisk:
    """A workspace whose disk has little room left."""

    def __init__(self, store: Store, *, free: int) -> None:
        self._store, self._free = store, free

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def free_bytes(self) -> int:
        return self._free


def nearly_full(setup: Setup, *, free: int) -> Workbench:
    bench = setup.bench()
    return replace(bench, store=cast("Store", FullDisk(bench.store, free=free)))


def test_a_build_that_does_not_fit_is_refused_with_the_numbers(setup: Setup) -> None:
    # A quarter of 18 + 17 bytes and of 17 + 16.
    with pytest.raises(ConfigError, match=r"writes 16 B or more, and 15 B are free") as caught:
        build(request(setup), nearly_full(setup, free=15))
    assert "make room" in (caught.value.hint or "")
    assert setup.runner.commands == []
    done = actions(build(request(setup), nearly_full(setup, free=16)))
    assert set(done.values()) == {"build", "render"}


def test_what_is_reused_needs_no_room(setup: Setup) -> None:
    built(setup)
    assert set(actions(build(request(setup), nearly_full(setup, free=0))).values()) == {"reuse"}


def test_another_draft_keeps_the_target(setup: Setup) -> None:
    built(setup)
    (setup.source("draft") / "model.safetensors").write_text("other weights")
    assert actions(built(setup)) == {"target": "reuse", "draft": "build", "repository": "reuse"}


def test_a_moved_source_keeps_the_artifact(setup: Setup) -> None:
    built(setup)
    moved = setup.source("target").rename(setup.folder / "moved")
    report = built(setup, target=setup.use("target", path=str(moved)))
    assert report.steps[0].action == "reuse"


def test_a_touched_source_with_equal_content_keeps_the_artifact(setup: Setup) -> None:
    built(setup)
    file = setup.source("target") / "model.safetensors"
    file.write_bytes(file.read_bytes())
    assert actions(built(setup))["target"] == "reuse"


def test_going_back_to_old_settings_reuses_the_old_artifact(setup: Setup) -> None:
    built(setup)
    built(setup, target=setup.use("target", precision="bf16"))
    assert actions(built(setup)) == {"target": "reuse", "draft": "reuse", "repository": "render"}


@pytest.mark.parametrize("part", ["target", "draft"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda d: (d / "model.safetensors").write_bytes(b"x" * 17),
        lambda d: (d / "model.safetensors").write_bytes(b""),
        lambda d: (d / "model.safetensors").unlink(),
        lambda d: (d / "extra").write_text(""),
        lambda d: (d / "manifest.json").unlink(),
        lambda d: (d / "manifest.json").write_text("{"),
        lambda d: (d / "manifest.json").write_text((d / "manifest.json").read_text()[:200]),
    ],
)
def test_a_damaged_artifact_is_never_taken_for_a_whole_one(
    setup: Setup, part: str, damage: Callable[[Path], None]
) -> None:
    report = built(setup)
    directory = next(Path(s.output) for s in report.steps if s.role == part)
    whole = everything_below(directory)
    damage(directory)
    assert actions(built(setup))[part] == "build"
    assert everything_below(directory) == whole


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ConfigError("disk")])
def test_an_interrupted_step_leaves_no_artifact_and_the_next_run_resumes(
    setup: Setup, failure: BaseException | type[BaseException]
) -> None:
    def interrupt(output: Path) -> None:
        if output.name.startswith(".draft"):
            raise failure

    setup.runner.trouble = interrupt
    with pytest.raises((KeyboardInterrupt, ConfigError)):
        built(setup)
    assert [p.name for p in setup.workspace.glob("engines/*/*")] == ["target"]
    setup.runner.trouble = lambda _: None
    assert actions(built(setup)) == {"target": "reuse", "draft": "build", "repository": "render"}


def test_a_failing_command_leaves_no_artifact_but_its_log(setup: Setup) -> None:
    def fail(output: Path) -> None:
        raise CommandFailedError(["convert"], 1, output / "log", "out of memory")

    setup.runner.trouble = fail
    with pytest.raises(CommandFailedError):
        built(setup)
    assert list(setup.workspace.glob("engines/*/*")) == []
    assert list(setup.workspace.glob("engines/*/.*")) == []
    assert (setup.workspace / "logs/0001-build-target.log").exists()


def test_a_command_that_writes_nothing_is_no_success(setup: Setup) -> None:
    setup.runner.run = lambda *_, **__: None  # type: ignore[method-assign]
    with pytest.raises(ArtifactError, match="wrote no file"):
        built(setup)
    assert list(setup.workspace.glob("engines/*/*")) == []


def test_a_source_that_changes_during_the_build_is_seen(setup: Setup) -> None:
    def meddle(_: Path) -> None:
        (setup.source("target") / "model.safetensors").write_text("meddled with")

    setup.runner.trouble = meddle
    with pytest.raises(ArtifactError, match="changed while it was being built"):
        built(setup)
    assert list(setup.workspace.glob("engines/*/*")) == []


def test_another_tool_version_makes_a_new_artifact(setup: Setup) -> None:
    built(setup)
    setup.tools.known["converter"] = "2"
    assert actions(built(setup))["target"] == "build"


def test_a_changed_setting_re_renders_the_repository_alone(setup: Setup) -> None:
    built(setup)
    old = (setup.workspace / "repository").resolve()
    report = built(setup, draft_length=6)
    assert actions(report) == {"target": "reuse", "draft": "reuse", "repository": "render"}
    assert (setup.workspace / "repository").resolve() != old
    assert (old / "repository.json").exists()


def test_a_damaged_repository_is_rendered_again(setup: Setup) -> None:
    built(setup)
    config = setup.workspace / "repository/leaf/config.pbtxt"
    whole = config.read_text()
    config.write_text("edited")
    assert actions(built(setup))["repository"] == "render"
    assert config.read_text() == whole


def test_a_failed_rendering_keeps_the_old_repository(setup: Setup) -> None:
    built(setup)
    before = everything_below(setup.workspace / "repository")
    (setup.folder / "templates/config.pbtxt.j2").write_text('name: "{{ typo }}"')
    with pytest.raises(ArtifactError):
        built(setup, draft_length=6)
    assert everything_below(setup.workspace / "repository") == before


def test_only_engines_renders_nothing(setup: Setup) -> None:
    report = build(request(setup, only="engines"), setup.bench())
    assert actions(report) == {"target": "build", "draft": "build"}
    assert not (setup.workspace / "repository").exists()


def test_only_repository_runs_no_command(setup: Setup) -> None:
    build(request(setup, only="engines"), setup.bench())
    setup.runner.commands.clear()
    report = build(request(setup, only="repository"), setup.bench())
    assert actions(report) == {"repository": "render"}
    assert setup.runner.commands == []


def test_only_repository_without_engines_is_refused(setup: Setup) -> None:
    with pytest.raises(ArtifactError, match="the target is not built") as caught:
        build(request(setup, only="repository"), setup.bench())
    assert "without --only" in str(caught.value.hint)


def test_without_a_draft_there_is_one_step(setup: Setup) -> None:
    assert actions(built(setup, draft=None)) == {"target": "build", "repository": "render"}


def test_a_preview_writes_nothing(setup: Setup) -> None:
    before = everything_below(setup.folder)
    report = preview(request(setup), setup.bench())
    assert not report.performed
    assert actions(report) == {"target": "build", "draft": "build", "repository": "render"}
    assert not setup.workspace.exists()
    assert everything_below(setup.folder) == before
    assert setup.runner.commands == []


def test_a_preview_tells_what_the_build_then_does(setup: Setup) -> None:
    promised = preview(request(setup), setup.bench())
    assert built(setup) == promised.evolve(performed=True)


def test_a_preview_of_a_built_pair_writes_nothing_and_has_no_reasons(setup: Setup) -> None:
    built(setup)
    before = everything_below(setup.workspace)
    report = preview(request(setup), setup.bench())
    assert set(actions(report).values()) == {"reuse"}
    assert all(not step.reasons for step in report.steps)
    assert everything_below(setup.workspace) == before


def reasons(setup: Setup, deployment: Deployment | None = None) -> list[str]:
    report = preview(request(setup, deployment), setup.bench())
    assert report.repository is not None
    parts = [*(step.reasons for step in report.steps), report.repository.reasons]
    return [reason.sentence for part in parts for reason in part]


def test_reasons_name_the_setting_that_changed(setup: Setup) -> None:
    built(setup)
    changed = setup.deployment(target=setup.use("target", precision="bf16"))
    assert reasons(setup, changed)[0] == "settings.precision: fp32 -> bf16"


def test_reasons_name_the_input_that_changed(setup: Setup) -> None:
    built(setup)
    (setup.source("draft") / "tokenizer.json").write_text("{}")
    (found,) = [r for r in reasons(setup) if r.startswith("input")]
    assert found.startswith("input tokenizer.json: absent -> 2 bytes, ")


def test_reasons_name_the_tool_that_changed(setup: Setup) -> None:
    built(setup)
    setup.tools.known["converter"] = "2"
    assert "tool converter: 1 -> 2" in reasons(setup)


def test_reasons_name_a_damaged_output(setup: Setup) -> None:
    report = built(setup)
    (Path(report.steps[0].output) / "config.json").write_text("[]")
    assert reasons(setup) == ["output config.json: same size, other content"]


def test_reasons_name_the_repository_file_and_setting_that_changed(setup: Setup) -> None:
    built(setup)
    found = reasons(setup, setup.deployment(draft_length=6))
    assert found[0] == "draft_length: 4 -> 6"
    assert found[1].startswith("file leaf/config.pbtxt: ")


def test_a_first_build_has_a_reason_too(setup: Setup) -> None:
    assert reasons(setup) == [
        "no target was built in this workspace",
        "no draft was built in this workspace",
        "no repository was rendered in this workspace",
    ]


def test_an_artifact_that_was_moved_away_is_built_again(setup: Setup) -> None:
    report = built(setup)
    folder = Path(report.steps[0].output).parent
    folder.rename(folder.with_name("elsewhere"))
    assert "the target is not where it belongs" in reasons(setup)


def test_leftovers_of_killed_builds_are_removed(setup: Setup) -> None:
    report = built(setup)
    left = Path(report.steps[0].output).with_name(".target.staging-dead")
    shutil.copytree(report.steps[0].output, left)
    built(setup)
    assert not left.exists()
    assert any("left by an interrupted build" in line for line in setup.reporter.lines)
