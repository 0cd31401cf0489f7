"""From flags and JSON lines to deployments; a bad line spoils no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from configs import FakeHub
from kernel_tables import FakeTables
from planning_models import model_named

from specdeploy.adapters.tuning_files import LocalTuningFiles
from specdeploy.core.acceptance import AcceptanceProfile, CategoryAcceptance
from specdeploy.core.models import ModelSpec
from specdeploy.errors import ConfigError, InfeasiblePlanError
from specdeploy.workflows.estimate import (
    EstimateTools,
    Estimator,
    Query,
    check_query,
    require_fit,
)


class CountedCheckpoints:
    """Knows models by their directory's name, and counts how often it is asked."""

    def __init__(self) -> None:
        self.reads = 0
        self._models = {
            "t": model_named("Llama-3.1-70B"),
            "d": model_named("Llama-3.2-1B"),
            "m": model_named("DeepSeek-V3"),
        }

    def read_model(self, path: Path) -> ModelSpec:
        self.reads += 1
        return self._models[path.name]


@pytest.fixture
def checkpoints() -> CountedCheckpoints:
    return CountedCheckpoints()


@pytest.fixture
def estimator(tmp_path: Path, checkpoints: CountedCheckpoints) -> Estimator:
    tools = EstimateTools(
        checkpoints=checkpoints, hub=FakeHub(), files=LocalTuningFiles(), kernels=FakeTables()
    )
    return Estimator(tools, tmp_path)


PAIR = Query(target="t", draft="d", gpu="h200", precision="fp8", draft_length=4)


def answers(estimator: Estimator, *lines: object, default: Query = PAIR) -> list[dict[str, Any]]:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return list(estimator.lines(texts, default))


def test_lines_are_answered_in_order_with_flags_as_defaults(estimator: Estimator) -> None:
    points = [{"batch": batch, "acceptance": 0.7, "tp": 1 + batch % 2} for batch in (1, 2, 3, 4)]
    found = answers(estimator, *points)
    alone = [answers(estimator, point)[0] for point in points]
    assert found == alone
    assert found[0]["baseline"]["tpot_ms"] > found[1]["baseline"]["tpot_ms"] * 0.5


def test_a_model_is_read_once_for_all_lines(
    estimator: Estimator, checkpoints: CountedCheckpoints
) -> None:
    answers(estimator, *({"batch": batch, "tp": 1 + batch % 2} for batch in range(1, 40)))
    assert checkpoints.reads == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "a point is a JSON object"),
        ({"bach": 1}, "there is no key 'bach'; did you mean 'batch'?"),
        ({"batch": 0}, "batch is 0, but must be a whole number from 1 to 16,777,216"),
        ({"batch": True}, "batch is True, but must be a whole number"),
        ({"output_len": 1}, "output_len is 1, but must be a whole number from 2 to 16,777,216"),
        ({"tokens_per_step": "x"}, "tokens_per_step is 'x', but must be a number"),
        ({"acceptance": True}, "acceptance is True, but must be a number"),
        ({"acceptance": 1.5}, "acceptance 1.5 is not between 0 and 1"),
        ({"tokens_per_step": 6}, "tokens_per_step 6 is not between 1 and 5"),
        ({"target": 3}, "target is 3, but must be text"),
        ({"method": "magic"}, "method is 'magic', but must be one of none, draft_target"),
        ({"gpu": "h2000"}, "unknown GPU 'h2000'; did you mean"),
        ({"precision": "fp7"}, "precision 'fp7' is not one of"),
        ({"kv_dtype": "fp7"}, "KV type 'fp7' is not one of"),
        ({"tp": 3}, "cannot be spread over tp 3"),
        ('{"batch": 1, "batch": 2}', "a key is there twice"),
        ('{"batch": "\udcff"}', "not UTF-8 text"),
        ({"method": "eagle3", "draft": None}, "method eagle3 needs a draft"),
    ],
)
def test_a_bad_line_is_named_and_the_rest_go_on(
    estimator: Estimator, line: object, said: str
) -> None:
    good = {"batch": 2}
    first, bad, last = answers(estimator, good, line, good)
    assert said in bad["error"]
    assert bad["line"] == 2
    assert first == last
    assert first["fits"]


def test_empty_lines_are_left_out_and_counted(estimator: Estimator) -> None:
    assert [answer.get("line") for answer in answers(estimator, "", {"batch": 1}, " ", "{")] == [
        None,
        4,
    ]


def test_many_lines_are_answered_a_piece_at_a_time(estimator: Estimator) -> None:
    asked = iter(json.dumps({"batch": 1 + at % 8}) for at in range(2500))
    stream = estimator.lines(asked, PAIR)
    next(stream)
    assert next(asked, None) is not None
    assert len(list(stream)) == 2498


@pytest.mark.parametrize("name", ["target", "gpu"])
def test_a_target_and_a_gpu_are_needed(estimator: Estimator, name: str) -> None:
    with pytest.raises(ConfigError, match=f"no {name} is given"):
        estimator.estimate(check_query({name: None}, PAIR))


def test_one_estimate_comes_with_its_memory_line_by_line(estimator: Estimator) -> None:
    found, plan = estimator.estimate(check_query({"acceptance": 0.7}, PAIR))
    assert found.memory.plan == plan
    assert plan.gpus[0].components
    assert found.speculative is not None
    require_fit(plan)


def test_one_estimate_tells_what_a_draft_step_costs(estimator: Estimator) -> None:
    found, _ = estimator.estimate(check_query({"tp": 4}, PAIR))
    assert found.draft_costs is not None
    assert [cost.tp for cost in found.draft_costs.by_tp] == [1, 4]
    alone, _ = estimator.estimate(check_query({"draft": None}, PAIR))
    assert alone.draft_costs is None


def test_what_does_not_fit_is_refused_with_what_would(estimator: Estimator) -> None:
    found, plan = estimator.estimate(check_query({"gpu": "l4"}, PAIR))
    assert not found.fits
    with pytest.raises(InfeasiblePlanError, match="it does not fit: GPU 0") as caught:
        require_fit(plan)
    assert caught.value.hint is not None


def test_acceptance_comes_from_a_number_a_file_or_a_preset(
    estimator: Estimator, tmp_path: Path
) -> None:
    profile = AcceptanceProfile(categories={"code": CategoryAcceptance(per_position=[0.7])})
    (tmp_path / "acceptance.json").write_text(profile.model_dump_json())
    words = (0.7, "acceptance.json", "preset:eagle-vicuna-7b")
    number, file, preset = answers(estimator, *({"acceptance": word} for word in words))
    assert number["speculative"]["tokens_per_step"] == pytest.approx(2.7731)
    assert file["speculative"] == number["speculative"]
    assert any("another pair" in said for said in preset["assumptions"])


def test_what_was_not_given_is_said(estimator: Estimator) -> None:
    (found,) = answers(estimator, {"draft_length": None})
    assert "no acceptance is known: give acceptance, or tokens_per_step" in found["assumptions"]
    assert "draft length 4 (draft_length is not given)" in found["assumptions"]
    assert found["speculative"] is None


@pytest.mark.parametrize(
    ("changes", "drafts"),
    [
        ({"method": "none"}, False),
        ({"draft": None}, False),
        ({"method": "none", "draft_length": None}, False),
        ({"method": "ngram", "draft": None}, True),
        ({"method": "mtp", "draft": None, "target": "m", "gpu": "b200", "tp": 8}, True),
    ],
)
def test_a_method_decides_what_drafts(
    estimator: Estimator,
    changes: dict[str, object],
    drafts: bool,  # noqa: FBT001
) -> None:
    (found,) = answers(estimator, {"acceptance": 0.5, **changes})
    assert (found["speedup"] != 1.0) == drafts
    assert found["baseline"] is not None


def test_a_draft_may_be_served_otherwise_than_its_target(estimator: Estimator) -> None:
    both, apart = answers(
        estimator,
        {"tp": 4, "acceptance": 0.7},
        {"tp": 4, "acceptance": 0.7, "draft_tp": 1, "draft_precision": "bf16"},
    )
    assert both["memory"]["fixed_bytes"] < apart["memory"]["fixed_bytes"]
    assert both["baseline"] == apart["baseline"]


def test_a_share_of_total_memory_bounds_all_that_is_on_the_card(estimator: Estimator) -> None:
    free, half, most = answers(
        estimator, {"batch": 2}, {"batch": 2, "memory_limit": 0.7}, {"memory_limit": 1}
    )
    total = 143771 * 1024**2
    for answer, share in ((half, 0.7), (most, 1)):
        memory = answer["memory"]
        assert memory["fixed_bytes"] + memory["pool_bytes"] <= share * total
    assert half["max_resident"] < free["max_resident"] < most["max_resident"]
    _, plan = estimator.estimate(check_query({"batch": 2, "memory_limit": 0.7}, PAIR))
    assert plan.limit == "0.7 of total memory"
    assert plan.max_resident == half["max_resident"]


@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan"), "0.5", True])
def test_a_memory_limit_that_is_no_share_is_refused(estimator: Estimator, share: object) -> None:
    (answer,) = answers(estimator, {"memory_limit": share})
    assert "memory" in answer["error"]


@pytest.mark.parametrize("key", ["batch", "tp", "precision", "kv_dtype", "source", "output_len"])
def test_null_in_a_line_stands_for_a_key_that_nobody_gives(estimator: Estimator, key: str) -> None:
    empty = Query(target="t", gpu="h200")
    null, nothing = answers(estimator, {key: None}, {}, default=empty)
    assert null == nothing


def test_a_gpu_without_the_precision_is_predicted_and_told(estimator: Estimator) -> None:
    query = {"gpu": "a100", "tp": 8, "draft": None, "precision": "fp8"}
    (answer,) = answers(estimator, query)
    assert answer["fits"]
    assert any("needs SM 8.9" in told for told in answer["assumptions"])
    (pair,) = answers(estimator, {"draft": "m", "method": "draft_target", "tp": 8})
    assert any("different tokenizers" in told for told in pair["assumptions"])
