"""Digests of build steps: equal when the output is, different when anything decides it."""

from __future__ import annotations

import pytest

from specdeploy.core.artifacts import compare_files, explain_step
from specdeploy.core.build import BuildStep, EngineManifest, InputFile, filled_argv
from specdeploy.core.repository import file_entry


def an_input(name: str = "model.safetensors", folder: str = "/m", sha: str = "a") -> InputFile:
    return InputFile(path=f"{folder}/{name}", size_bytes=1, sha256=sha)


def a_step(**changes: object) -> BuildStep:
    step = BuildStep(
        role="target",
        argv=["{python}", "--from", "/m", "--to={output}"],
        inputs=[an_input(), an_input("config.json")],
        settings={"dtype": "fp32"},
    )
    return step.evolve(**changes)


TOOLS = {"torch": "2"}
DIGEST = a_step().plan_digest(TOOLS)


@pytest.mark.parametrize(
    "changes",
    [
        {"role": "draft"},
        {"argv": ["{python}", "--from", "/m", "--to={output}", "--fast"]},
        {"inputs": [an_input(sha="b"), an_input("config.json")]},
        {"inputs": [an_input()]},
        {"inputs": [an_input("other.safetensors"), an_input("config.json")]},
        {"settings": {"dtype": "bf16"}},
        {"settings": {}},
    ],
)
def test_whatever_decides_the_output_changes_the_digest(changes: dict[str, object]) -> None:
    assert a_step(**changes).plan_digest(TOOLS) != DIGEST


def test_a_tool_version_changes_the_digest() -> None:
    assert a_step().plan_digest({"torch": "3"}) != DIGEST


def test_where_the_sources_lie_and_their_order_do_not_change_the_digest() -> None:
    moved = a_step(
        argv=["{python}", "--from", "/else/where", "--to={output}"],
        inputs=[an_input("config.json", "/else/where"), an_input(folder="/else/where")],
    )
    assert moved.plan_digest(TOOLS) == DIGEST


def test_placeholders_are_filled_as_whole_words_only() -> None:
    argv = ["{python}", "-x={output}", "{output}", "/a{output}b", "--p=/q/{python}"]
    filled = filled_argv(argv, {"python": "py", "output": "out"})
    assert filled == ["py", "-x=out", "out", "/a{output}b", "--p=/q/{python}"]


def a_manifest(step: BuildStep) -> EngineManifest:
    return EngineManifest(
        role=step.role,
        plan_digest=step.plan_digest(TOOLS),
        settings=step.settings,
        argv=step.argv,
        inputs=step.inputs,
        tools=TOOLS,
        outputs=[],
    )


def test_a_changed_command_is_a_reason() -> None:
    (reason,) = explain_step(a_step(argv=["new"]), TOOLS, a_manifest(a_step()))
    assert reason.sentence == "command: {python} --from {inputs} --to={output} -> new"


def test_a_removed_input_is_a_reason() -> None:
    (reason,) = explain_step(a_step(inputs=[an_input()]), TOOLS, a_manifest(a_step()))
    assert reason.sentence == "input config.json: 1 bytes, a -> absent"


def test_an_unchanged_step_has_no_reason() -> None:
    assert explain_step(a_step(), TOOLS, a_manifest(a_step())) == []


def test_equal_files_have_no_differences() -> None:
    files = [file_entry("a", b"1"), file_entry("b/c", b"2")]
    assert list(compare_files(files, list(reversed(files)))) == []


def test_differences_come_in_the_order_of_names() -> None:
    recorded = [file_entry("b", b"1"), file_entry("d", b"1"), file_entry("c", b"1")]
    found = [file_entry("a", b"1"), file_entry("c", b"2"), file_entry("d", b"12")]
    kinds = [(d.path, d.kind) for d in compare_files(recorded, found)]
    assert kinds == [("a", "extra"), ("b", "missing"), ("c", "changed"), ("d", "changed")]
