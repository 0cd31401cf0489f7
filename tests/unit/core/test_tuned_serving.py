"""What a build reads of ``tuning.json`` beside the chosen numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from configs import FakeCheckpoints, a_model_spec, load

from specdeploy.adapters.config_files import LocalConfigFiles
from specdeploy.core.resolution import Located, plan_deployment
from specdeploy.core.tuning import Tuning

CHOICE = {"draft_length": 4, "max_batch_size": 8, "max_num_tokens": 4096, "max_seq_len": 512}
TIERS = [{"from_batch": 1, "to_batch": 8, "draft_length": 4}]


def pool(tokens: int, fraction: float) -> dict[str, object]:
    return {
        "bytes_per_token": 10,
        "max_tokens_in_paged_kv_cache": tokens,
        "kv_cache_free_gpu_mem_fraction": fraction,
        "request_blocks": 3,
    }


def fraction(order: str, target: dict[str, object], draft: dict[str, object] | None) -> float:
    memory = {"load_order": order, "target": target, "draft": draft, "fits": True}
    found = Tuning.model_validate({"choice": CHOICE, "memory": memory}).serving.kv_fraction
    assert found is not None
    return found


@pytest.mark.parametrize("order", ["draft_first", "target_first"])
def test_one_engine_holds_both_pools_in_a_share_of_what_both_models_leave(order: str) -> None:
    # 1,000 bytes are free beside both models; the pools take 100 and 450 of them.
    first, last = pool(10, 100 / 1000), pool(45, 450 / 900)
    target, draft = (last, first) if order == "draft_first" else (first, last)
    assert fraction(order, target, draft) == pytest.approx(0.55)


def test_a_share_is_rounded_up_and_is_never_all_of_the_memory() -> None:
    assert fraction("draft_first", pool(10, 0.5), None) == 0.5
    assert fraction("draft_first", pool(90, 1.0), pool(10, 0.1)) == 0.95
    assert fraction("draft_first", pool(1, 0.333), pool(1, 0.3)) == 0.5


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_plan_without_a_pool_leaves_the_share_to_the_engine(share: float) -> None:
    memory = {"load_order": "draft_first", "target": pool(0, share), "draft": pool(0, share)}
    assert Tuning.model_validate({"choice": CHOICE, "memory": memory}).serving.kv_fraction is None


def test_a_file_without_schedule_and_memory_decides_neither() -> None:
    serving = Tuning.model_validate({"choice": CHOICE}).serving
    assert (serving.tiers, serving.kv_fraction) == ([], None)


def deployment_of(folder: Path, text: str = "") -> tuple[list[int], float | None]:
    memory = {"load_order": "draft_first", "target": pool(10, 0.5), "draft": None}
    content = {"choice": CHOICE, "schedule": {"tiers": TIERS}, "memory": memory}
    for name in ("t", "d"):
        (folder / name).mkdir(exist_ok=True)
    (folder / ".specdeploy").mkdir(exist_ok=True)
    (folder / ".specdeploy" / "tuning.json").write_text(json.dumps(content))
    loaded = load(folder, f"target: {{path: t}}\ndraft: {{path: d}}\n{text}")
    checkpoints = FakeCheckpoints(t=a_model_spec(), d=a_model_spec())
    target, draft = (Located(f"/{n}", checkpoints.read_model(Path(n))) for n in ("t", "d"))
    tuned = plan_deployment(loaded, target=target, draft=draft).tuned
    return [tier.draft_length for tier in tuned.tiers], tuned.kv_fraction


def test_a_pool_is_for_the_numbers_that_it_was_planned_for(tmp_path: Path) -> None:
    assert deployment_of(tmp_path) == ([4], 0.5)
    assert deployment_of(tmp_path, "draft_length: 3\n") == ([4], None)


def test_the_reader_keeps_the_schedule(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    file.write_text(json.dumps({"choice": CHOICE, "schedule": {"tiers": TIERS, "floor": 0}}))
    assert LocalConfigFiles().read_tuning(file).serving.tiers[0].to_batch == 8
