from __future__ import annotations

import json
from pathlib import Path

import pytest
from configs import a_model_spec, load

from specdeploy.core.effective import EffectiveSettings, Setting, effective_settings
from specdeploy.core.resolution import Located
from specdeploy.core.settings import leaf_fields
from specdeploy.errors import ConfigError

PAIR = "target: {path: t}\ndraft: {path: d}\n"
TARGET = Located("/models/t", a_model_spec())
DRAFT = Located("/models/d", a_model_spec(context_length=1024, dtype="float16"))


def setting(shown: EffectiveSettings, key: str) -> Setting:
    return next(setting for setting in shown.settings if setting.key == key)


def told(shown: EffectiveSettings, key: str) -> tuple[object, str]:
    found = setting(shown, key)
    return found.value, str(found.source)


def test_every_setting_is_shown_once(tmp_path: Path) -> None:
    shown = effective_settings(load(tmp_path, PAIR), target=TARGET, draft=DRAFT)
    assert [setting.key for setting in shown.settings] == list(leaf_fields())


def test_a_draft_that_is_not_there_is_not_shown(tmp_path: Path) -> None:
    loaded = load(tmp_path, "target: {path: t}\nmethod: ngram\n")
    shown = effective_settings(loaded, target=TARGET, draft=None)
    assert not [setting for setting in shown.settings if setting.key.startswith("draft.")]


def test_what_was_auto_shows_its_number_and_who_decided(tmp_path: Path) -> None:
    (tmp_path / "my.json").write_text(json.dumps({"choice": {"max_batch_size": 16}}))
    loaded = load(tmp_path, PAIR, tuning=Path("my.json"))
    shown = effective_settings(loaded, target=TARGET, draft=DRAFT)
    tuned, source = told(shown, "limits.max_batch_size")
    assert (tuned, source) == (16, f"tuning {tmp_path}/my.json")
    assert told(shown, "draft_length") == (4, "default")
    assert told(shown, "limits.max_seq_len") == (1020, "checkpoint context of the draft")
    assert told(shown, "draft.precision") == ("fp16", "checkpoint stored float16")
    assert told(shown, "target.path") == ("/models/t", "specdeploy.yaml:1")


def test_a_written_precision_is_shown_with_its_line(tmp_path: Path) -> None:
    loaded = load(tmp_path, "target: {path: t, precision: fp32}\nmethod: none\n")
    shown = effective_settings(loaded, target=TARGET, draft=None)
    assert told(shown, "target.precision") == ("fp32", "specdeploy.yaml:1")


def test_without_checkpoints_what_they_decide_stays_auto(tmp_path: Path) -> None:
    shown = effective_settings(load(tmp_path, PAIR), target=None, draft=None)
    assert told(shown, "limits.max_seq_len") == ("auto", "default")
    assert told(shown, "target.precision") == ("auto", "default")
    assert told(shown, "draft_length") == (4, "default")


def test_a_written_length_is_shown_without_checkpoints(tmp_path: Path) -> None:
    loaded = load(tmp_path, f"{PAIR}limits: {{max_seq_len: 99999}}\n")
    shown = effective_settings(loaded, target=None, draft=None)
    assert told(shown, "limits.max_seq_len") == (99999, "specdeploy.yaml:3")


def test_a_length_that_overruns_the_context_is_refused(tmp_path: Path) -> None:
    loaded = load(tmp_path, f"{PAIR}limits: {{max_seq_len: 99999}}\n")
    with pytest.raises(ConfigError, match="positions"):
        effective_settings(loaded, target=TARGET, draft=DRAFT)


def test_the_shape_that_a_runtime_has_is_shown(tmp_path: Path) -> None:
    loaded = load(tmp_path, f"{PAIR}runtime: {{name: llmapi}}\n")
    shown = effective_settings(loaded, target=None, draft=None)
    assert told(shown, "runtime.shape")[0] == "llmapi"
