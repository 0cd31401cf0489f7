from __future__ import annotations

from engine_plans import a_deployment

from specdeploy.core.build import InputFile
from specdeploy.runtimes.base import StepInputs
from specdeploy.runtimes.reference import ReferenceRuntime

INPUTS = StepInputs(
    target=[InputFile(path="/models/target/config.json", size_bytes=1, sha256="a")],
    draft=[InputFile(path="/models/draft/config.json", size_bytes=1, sha256="b")],
    tools={"torch": "2.13"},
)


def test_one_conversion_per_model_of_the_pair() -> None:
    plan = ReferenceRuntime().plan_build(a_deployment(precision="bf16"), inputs=INPUTS)
    assert [step.role for step in plan.steps] == ["target", "draft"]
    assert plan.steps[1].argv == [
        "{python}",
        "-m",
        "specdeploy.adapters.reference_convert",
        "--checkpoint-dir",
        "/models/draft",
        "--output-dir",
        "{output}",
        "--dtype",
        "bf16",
    ]
    assert plan.steps[1].inputs == INPUTS.draft
    assert plan.steps[1].settings["dtype"] == "bf16"
    assert plan.tools == INPUTS.tools


def test_a_conversion_takes_the_room_of_the_weights_as_served() -> None:
    for precision, size in (("bf16", 2), ("fp32", 4)):
        plan = ReferenceRuntime().plan_build(a_deployment(precision=precision), inputs=INPUTS)
        assert [step.disk_bytes for step in plan.steps] == [size, size]  # of one parameter


def test_no_draft_is_converted_for_a_method_without_one() -> None:
    for method in ("ngram", "none"):
        plan = ReferenceRuntime().plan_build(a_deployment(method=method), inputs=INPUTS)
        assert [step.role for step in plan.steps] == ["target"]


def test_a_different_precision_is_a_different_artifact() -> None:
    digests = {
        ReferenceRuntime()
        .plan_build(a_deployment(precision=precision), inputs=INPUTS)
        .steps[0]
        .plan_digest({})
        for precision in ("fp32", "bf16", "fp16")
    }
    assert len(digests) == 3
