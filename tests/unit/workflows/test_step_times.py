"""Which step times a pair gets, by source and by what was timed."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from kernel_tables import FakeTables
from planning_models import model_named

from specdeploy.core.hardware import find_gpu
from specdeploy.core.served import ServedModel, ServedPair, serve_model
from specdeploy.errors import ConfigError, MissingToolError
from specdeploy.workflows.step_times import (
    Checkpoints,
    StepSource,
    StepTimes,
    choose_step_times,
)

GPU = find_gpu("h100-sxm")
TARGET, DRAFT = Path("target"), Path("draft")
MIXTRAL = serve_model(model_named("Mixtral"), tp=2)
LLAMA = serve_model(model_named("Llama-3.1-8B"))
DEEPSEEK = serve_model(model_named("DeepSeek-V3"), tp=8)


def choose(
    target: ServedModel, tables: FakeTables, source: StepSource, *, draft: bool = False
) -> StepTimes:
    pair = ServedPair(target, LLAMA, "draft_target") if draft else ServedPair(target)
    places = Checkpoints(TARGET, DRAFT if draft else None)
    return choose_step_times(pair, GPU, places, source=source, tables=tables)


def test_physics_asks_for_no_kernels() -> None:
    tables = FakeTables(TARGET)
    assert choose(MIXTRAL, tables, "physics").pair.target.measured is None
    assert tables.asked == []


def test_auto_takes_timed_kernels_of_a_target_with_experts() -> None:
    chosen = choose(MIXTRAL, FakeTables(TARGET), "auto")
    assert chosen.pair.target.measured is not None
    assert chosen.told == ("the target's kernels take what they took with straight lines",)


@pytest.mark.parametrize("target", [LLAMA, DEEPSEEK], ids=["dense", "latent attention"])
def test_auto_asks_for_no_kernels_where_the_roofline_is_nearer(target: ServedModel) -> None:
    tables = FakeTables(TARGET)
    assert choose(target, tables, "auto").pair.target.measured is None
    assert tables.asked == []


def test_auto_leaves_the_draft_as_it_is() -> None:
    chosen = choose(MIXTRAL, FakeTables(TARGET, DRAFT), "auto", draft=True)
    assert chosen.pair.target.measured is not None
    assert chosen.pair.draft == LLAMA


def test_auto_goes_on_without_the_package_and_says_nothing() -> None:
    chosen = choose(MIXTRAL, FakeTables(installed=False), "auto")
    assert chosen == StepTimes(ServedPair(MIXTRAL))


def test_auto_says_why_experts_have_no_timed_kernels() -> None:
    chosen = choose(MIXTRAL, FakeTables(), "auto")
    assert chosen.pair.target.measured is None
    assert chosen.told == ("the target's step times are computed: nobody timed it",)


def test_silicon_takes_timed_kernels_of_both_models() -> None:
    chosen = choose(LLAMA, FakeTables(TARGET, DRAFT), "silicon", draft=True)
    assert chosen.pair.target.measured is not None
    assert chosen.pair.draft is not None
    assert chosen.pair.draft.measured is not None
    assert len(chosen.told) == 2


def test_silicon_goes_on_without_the_draft() -> None:
    chosen = choose(LLAMA, FakeTables(TARGET), "silicon", draft=True)
    assert chosen.pair.draft == LLAMA
    assert len(chosen.told) == 1


def test_silicon_refuses_a_target_that_nobody_timed() -> None:
    with pytest.raises(ConfigError, match="nobody timed it") as caught:
        choose(LLAMA, FakeTables(DRAFT), "silicon", draft=True)
    assert "--source physics" in (caught.value.hint or "")


def test_silicon_refuses_to_go_on_without_the_package() -> None:
    with pytest.raises(MissingToolError):
        choose(LLAMA, FakeTables(installed=False), "silicon")


@pytest.mark.parametrize("source", get_args(StepSource))
def test_the_method_and_the_shape_of_a_pair_are_kept(source: StepSource) -> None:
    chosen = choose(MIXTRAL, FakeTables(TARGET, DRAFT), source, draft=True)
    assert chosen.pair.method == "draft_target"
