from __future__ import annotations

import json
from pathlib import Path

import pytest
from configs import FakeCheckpoints, FakeHub, a_model_spec, load, write_config

from specdeploy.adapters.config_files import LocalConfigFiles
from specdeploy.core.deployment import Deployment
from specdeploy.core.models import ModelSpec, QuantizationSpec
from specdeploy.core.resolution import LoadedConfig
from specdeploy.errors import CheckpointError, ConfigError
from specdeploy.runtimes import RUNTIMES
from specdeploy.workflows.deployment import (
    ConfigRequest,
    load_config,
    locate_models,
    resolve_deployment,
)

PAIR = "target: {path: t}\ndraft: {path: d}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the pair's (empty) checkpoint directories."""
    (tmp_path / "t").mkdir()
    (tmp_path / "d").mkdir()
    return tmp_path


def resolve(
    loaded: LoadedConfig, *, target: ModelSpec | None = None, draft: ModelSpec | None = None
) -> Deployment:
    checkpoints = FakeCheckpoints(
        t=target or a_model_spec(), d=draft or a_model_spec(context_length=1024)
    )
    return resolve_deployment(loaded, checkpoints=checkpoints, hub=FakeHub())


def write_tuning(path: Path, **choice: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"choice": choice}))
    return path


def test_the_file_wins_over_defaults_the_environment_over_it_and_flags_over_all(
    folder: Path,
) -> None:
    text = f"{PAIR}draft_length: 2\n"
    variables = {"SPECDEPLOY_DRAFT_LENGTH": "3"}
    flags = [("--draft-length", "draft_length", "5")]
    assert load(folder, PAIR).config.draft_length == "auto"
    assert load(folder, text).config.draft_length == 2
    assert load(folder, text, environment=variables).config.draft_length == 3
    assert load(folder, text, environment=variables, flags=flags).config.draft_length == 5


def test_each_value_knows_its_source(folder: Path) -> None:
    loaded = load(
        folder,
        f"{PAIR}method: ngram\n",
        environment={"SPECDEPLOY_SAMPLING__TOP_K": "8"},
        flags=[("--tp", "target.tp", "2")],
    )
    assert str(loaded.source("method")) == "specdeploy.yaml:3"
    assert str(loaded.source("sampling.top_k")) == "environment SPECDEPLOY_SAMPLING__TOP_K"
    assert str(loaded.source("target.tp")) == "flag --tp"
    assert str(loaded.source("objective")) == "default"


def test_no_file_is_needed_when_a_flag_names_the_target(folder: Path) -> None:
    loaded = load(folder, flags=[("--target", "target.path", "t"), ("--method", "method", "none")])
    assert loaded.file is None
    assert loaded.workspace == str(folder / ".specdeploy")


def test_neither_file_nor_target_says_how_to_start(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no specdeploy\.yaml") as caught:
        load(folder)
    assert "specdeploy init" in str(caught.value.hint)


def test_a_flag_for_both_models_needs_no_draft(folder: Path) -> None:
    flags = [("--tp", "target.tp", "2"), ("--tp", "draft.tp", "2")]
    loaded = load(folder, "target: {path: t}\nmethod: ngram\n", flags=flags)
    assert loaded.config.target.tp == 2
    assert loaded.config.draft is None


def test_a_flag_for_both_models_reaches_the_draft(folder: Path) -> None:
    loaded = load(folder, PAIR, flags=[("--tp", "target.tp", "2"), ("--tp", "draft.tp", "2")])
    assert loaded.config.draft is not None
    assert loaded.config.draft.tp == 2


def test_paths_in_the_file_start_from_the_file(folder: Path) -> None:
    below = folder / "configs"
    below.mkdir()
    path = write_config(below, "target: {path: ../t}\nmethod: none\nworkspace: made\n")
    loaded = load_config(
        ConfigRequest(cwd=folder, config=path.relative_to(folder)), files=LocalConfigFiles()
    )
    assert locate_models(loaded, hub=FakeHub()).target == folder / "t"
    assert loaded.workspace == str(below / "made")
    assert loaded.file == "configs/specdeploy.yaml"


def test_paths_in_flags_and_variables_start_from_the_current_folder(folder: Path) -> None:
    below = folder / "configs"
    below.mkdir()
    write_config(below, "target: {path: elsewhere}\n")
    request = ConfigRequest(
        cwd=folder,
        config=Path("configs/specdeploy.yaml"),
        environment={"SPECDEPLOY_DRAFT__PATH": "d"},
        flags=[("--target", "target.path", "t")],
    )
    paths = locate_models(load_config(request, files=LocalConfigFiles()), hub=FakeHub())
    assert (paths.target, paths.draft) == (folder / "t", folder / "d")


def test_a_tilde_is_the_home_folder(folder: Path) -> None:
    loaded = load(folder, "target: {path: ~/t}\nmethod: none\n", environment={"HOME": str(folder)})
    assert locate_models(loaded, hub=FakeHub()).target == folder / "t"


def test_a_tilde_alone_is_the_home_folder(folder: Path) -> None:
    loaded = load(folder, "target: {path: '~'}\nmethod: ngram\n", environment={"HOME": str(folder)})
    assert locate_models(loaded, hub=FakeHub()).target == folder


def test_a_hub_id_is_resolved(folder: Path) -> None:
    loaded = load(folder, "target: {path: owner/name}\nmethod: none\n")
    hub = FakeHub({"owner/name": folder / "t"})
    assert locate_models(loaded, hub=hub).target == folder / "t"


def test_a_folder_wins_over_a_hub_id_of_its_name(folder: Path) -> None:
    (folder / "owner" / "name").mkdir(parents=True)
    loaded = load(folder, "target: {path: owner/name}\nmethod: none\n")
    hub = FakeHub({"owner/name": folder / "t"})
    assert locate_models(loaded, hub=hub).target == folder / "owner" / "name"


def test_a_hub_id_that_is_not_there_says_how_to_download_it(folder: Path) -> None:
    loaded = load(folder, "target: {path: owner/name}\nmethod: none\n")
    with pytest.raises(ConfigError, match="as a Hub id: it is not cached") as caught:
        locate_models(loaded, hub=FakeHub())
    assert caught.value.hint == "hf download owner/name"


def test_a_path_that_does_not_exist_names_the_line_that_says_it(folder: Path) -> None:
    loaded = load(folder, "method: none\ntarget:\n  path: ./gone\n")
    with pytest.raises(CheckpointError) as caught:
        locate_models(loaded, hub=FakeHub())
    assert str(caught.value) == f"target.path (specdeploy.yaml:3): {folder}/gone does not exist"


def test_a_path_longer_than_the_system_takes_does_not_exist(folder: Path) -> None:
    loaded = load(folder, f"target: {{path: {'t' * 300}}}\nmethod: ngram\n")
    with pytest.raises(CheckpointError, match="does not exist"):
        locate_models(loaded, hub=FakeHub())


def test_a_workspace_longer_than_the_system_takes_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="cannot look into workspace"):
        load(folder, f"{PAIR}workspace: {'w' * 300}\n")


def test_draft_target_needs_a_draft(folder: Path) -> None:
    loaded = load(folder, "target: {path: t}\n")
    with pytest.raises(ConfigError, match="draft_target needs a draft model"):
        resolve(loaded)


@pytest.mark.parametrize("method", ["ngram", "none"])
def test_a_method_without_a_draft_leaves_the_draft_out(folder: Path, method: str) -> None:
    deployment = resolve(
        load(folder, f"target: {{path: t}}\ndraft: {{path: gone}}\nmethod: {method}\n")
    )
    assert deployment.draft is None
    assert deployment.method == method


def test_stated_defaults_fill_what_is_auto(folder: Path) -> None:
    deployment = resolve(load(folder, PAIR))
    assert deployment.draft_length == 4
    assert deployment.limits.max_batch_size == 4
    assert deployment.limits.max_num_tokens == 8192
    assert deployment.shape == "engine"
    assert deployment.tuning_digest is None


def test_auto_length_leaves_room_for_a_draft_in_the_shorter_context(folder: Path) -> None:
    deployment = resolve(load(folder, f"{PAIR}draft_length: 6\n"))
    assert deployment.limits.max_seq_len == 1024 - 6


def test_the_drafts_context_does_not_limit_a_method_without_a_draft(folder: Path) -> None:
    assert resolve(load(folder, f"{PAIR}method: ngram\n")).limits.max_seq_len == 2048 - 4


def test_no_method_means_no_draft_tokens(folder: Path) -> None:
    deployment = resolve(load(folder, f"{PAIR}method: none\ndraft_length: 6\n"))
    assert deployment.draft_length == 0
    assert deployment.limits.max_seq_len == 2048


def test_a_forward_pass_has_room_for_every_requests_draft(folder: Path) -> None:
    loaded = load(folder, f"{PAIR}draft_length: 9\nlimits: {{max_batch_size: 1000}}\n")
    assert resolve(loaded).limits.max_num_tokens == 10_000


def test_a_length_that_just_fits_is_accepted(folder: Path) -> None:
    loaded = load(folder, f"{PAIR}draft_length: 4\nlimits: {{max_seq_len: 1020}}\n")
    assert resolve(loaded).limits.max_seq_len == 1020


def test_a_length_that_overruns_a_context_is_refused_with_the_numbers(folder: Path) -> None:
    loaded = load(folder, f"{PAIR}draft_length: 4\nlimits: {{max_seq_len: 1021}}\n")
    with pytest.raises(ConfigError) as caught:
        resolve(loaded)
    assert str(caught.value) == (
        "max_seq_len 1021 (specdeploy.yaml:4) and draft_length 4 (specdeploy.yaml:3) do not "
        "fit: the draft has 1024 positions"
    )
    assert caught.value.hint == "max_seq_len can be at most 1020"


def test_a_draft_longer_than_the_context_is_refused(folder: Path) -> None:
    loaded = load(folder, f"{PAIR}draft_length: 4\n")
    with pytest.raises(ConfigError, match="the draft has 4 positions"):
        resolve(loaded, draft=a_model_spec(context_length=4))


def test_tuning_fills_what_is_auto_and_leaves_its_digest(folder: Path) -> None:
    tuning = write_tuning(folder / "my.json", draft_length=7, max_batch_size=16, max_seq_len=512)
    deployment = resolve(load(folder, PAIR, tuning=tuning))
    assert deployment.draft_length == 7
    assert deployment.limits.max_batch_size == 16
    assert deployment.limits.max_seq_len == 512
    assert deployment.tuning_digest is not None


def test_a_number_in_the_file_wins_over_tuning(folder: Path) -> None:
    tuning = write_tuning(folder / "my.json", draft_length=7)
    deployment = resolve(load(folder, f"{PAIR}draft_length: 2\n", tuning=tuning))
    assert deployment.draft_length == 2
    assert deployment.tuning_digest is None


def test_the_workspaces_tuning_is_taken_when_none_is_given(folder: Path) -> None:
    write_tuning(folder / ".specdeploy" / "tuning.json", draft_length=3)
    assert resolve(load(folder, PAIR)).draft_length == 3


def test_a_given_tuning_file_wins_over_the_workspaces(folder: Path) -> None:
    write_tuning(folder / ".specdeploy" / "tuning.json", draft_length=3)
    tuning = write_tuning(folder / "my.json", draft_length=7)
    assert resolve(load(folder, PAIR, tuning=tuning)).draft_length == 7


def test_a_tuning_file_that_does_not_exist_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load(folder, PAIR, tuning=folder / "gone.json")


@pytest.mark.parametrize(
    ("stored", "served"), [("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16")]
)
def test_auto_precision_keeps_that_of_the_weights(folder: Path, stored: str, served: str) -> None:
    deployment = resolve(load(folder, PAIR), target=a_model_spec(dtype=stored))
    assert deployment.target.precision == served


def test_a_written_precision_wins_over_that_of_the_weights(folder: Path) -> None:
    deployment = resolve(load(folder, "target: {path: t, precision: fp32}\nmethod: none\n"))
    assert deployment.target.precision == "fp32"


def test_auto_precision_of_unusual_weights_asks_for_one(folder: Path) -> None:
    with pytest.raises(ConfigError, match="stored as float8_e4m3fn"):
        resolve(load(folder, PAIR), target=a_model_spec(dtype="float8_e4m3fn"))


def test_a_precision_that_needs_a_gpu_is_refused(folder: Path) -> None:
    loaded = load(folder, "target: {path: t, precision: fp8}\nmethod: none\n")
    with pytest.raises(
        ConfigError,
        match=r"target\.precision is fp8, but the reference runtime has fp32, bf16, fp16",
    ):
        resolve(loaded)


def test_quantized_weights_are_refused(folder: Path) -> None:
    quantized = a_model_spec(quantization=QuantizationSpec(method="awq"))
    with pytest.raises(ConfigError, match=r"the target's weights are quantized \(awq\)"):
        resolve(load(folder, PAIR), target=quantized)


def test_a_draft_in_a_precision_that_needs_a_gpu_is_refused(folder: Path) -> None:
    loaded = load(folder, "target: {path: t}\ndraft: {path: d, precision: nvfp4}\n")
    with pytest.raises(ConfigError, match=r"draft\.precision is nvfp4"):
        resolve(loaded)


def test_a_draft_longer_than_the_runtime_drafts_is_refused(folder: Path) -> None:
    longest = RUNTIMES["reference"].capabilities.max_draft_length
    assert resolve(load(folder, f"{PAIR}draft_length: {longest}\n")).draft_length == longest
    with pytest.raises(ConfigError, match="is more than the reference runtime drafts"):
        resolve(load(folder, f"{PAIR}draft_length: {longest + 1}\n"))


def test_the_rest_of_the_file_reaches_the_deployment(folder: Path) -> None:
    text = (
        f"{PAIR}runtime: {{shape: llmapi}}\nsampling: {{top_k: 8}}\nserving: {{threads: 2}}\n"
        "trust_remote_code: true\nallow_lossy: true\n"
    )
    deployment = resolve(load(folder, text))
    assert deployment.shape == "llmapi"
    assert deployment.sampling.top_k == 8
    assert deployment.serving.threads == 2
    assert deployment.trust_remote_code
    assert deployment.allow_lossy
    assert deployment.target.path == str(folder / "t")


def test_a_shape_is_used_by_the_reference_runtime_only(folder: Path) -> None:
    shape = f"{PAIR}runtime: {{name: engine, shape: llmapi}}\n"
    assert load(folder, shape).unused == ["runtime.shape"]
    reference = [("--runtime", "runtime.name", "reference")]
    assert load(folder, shape, flags=reference).unused == []


def test_settings_that_nothing_acts_on_yet_are_named(folder: Path) -> None:
    loaded = load(folder, "target: {path: t, gpus: [0]}\ndraft: {path: d}\nobjective: cost\n")
    assert loaded.unused == ["target.gpus"]


@pytest.mark.parametrize(
    ("spelt", "read"),
    [("int4-awq", "int4_awq"), ("int8", "int8_wo"), ("W4A8_AWQ", "w4a8"), ("bfloat16", "bf16")],
)
def test_a_precision_may_be_spelt_as_the_tools_spell_it(
    tmp_path: Path, spelt: str, read: str
) -> None:
    loaded = load(tmp_path, f"target: {{path: t, precision: {spelt}}}\n")
    assert loaded.config.target.precision == read


def test_an_unknown_precision_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"target\.precision.*fp7.*nvfp4"):
        load(tmp_path, "target: {path: t, precision: fp7}\n")
