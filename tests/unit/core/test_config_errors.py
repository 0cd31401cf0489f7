from __future__ import annotations

from pathlib import Path

import pytest
from configs import load

from specdeploy.core.config import LATER_METHODS
from specdeploy.errors import ConfigError


def refusal(folder: Path, text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, environment=environment)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_an_unknown_key_names_the_nearest_one_and_its_line(tmp_path: Path) -> None:
    message = refusal(tmp_path, "target: {path: t}\nmethod: none\ndraft_lenght: 4\n")
    assert message == (
        "specdeploy.yaml:3: unknown key 'draft_lenght'; did you mean 'draft_length'?"
    )


def test_an_unknown_nested_key_names_the_nearest_one_and_its_line(tmp_path: Path) -> None:
    message = refusal(tmp_path, "method: none\ntarget:\n  path: t\n  precison: bf16\n")
    assert message == "specdeploy.yaml:4: unknown key 'precison'; did you mean 'precision'?"


def test_a_key_of_another_section_is_sent_there(tmp_path: Path) -> None:
    message = refusal(tmp_path, "target: {path: t}\nmethod: none\nmax_seq_len: 4\n")
    assert message == "specdeploy.yaml:3: unknown key 'max_seq_len'; it belongs under limits"


def test_a_key_like_no_other_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    message = refusal(tmp_path, "target: {path: t}\nruntime: {zzz: 1}\n")
    known = "name, shape, trtllm_version, trtllm_source, container, executor"
    assert message.endswith(f"known keys here: {known}")


def test_an_unknown_section_is_refused_at_its_own_line(tmp_path: Path) -> None:
    message = refusal(tmp_path, "target: {path: t}\ntargets:\n  path: t\n")
    assert message == "specdeploy.yaml:2: unknown key 'targets'; did you mean 'target'?"


def test_every_problem_is_told_in_the_files_order(tmp_path: Path) -> None:
    message = refusal(tmp_path, "objective: fast\ntarget: {tp: 0}\nzzz: 1\n")
    lines = [line.split(":")[1] for line in message.splitlines()]
    assert lines == ["1", "2", "2", "3"]


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("draft_length: true", "draft_length is true, but must be a whole number or 'auto'"),
        ("draft_length: 4.5", "draft_length is 4.5, but must be a whole number or 'auto'"),
        ("draft_length: -1", "draft_length is -1, but must be at least 0 or 'auto'"),
        ("draft_length: 999", "draft_length is 999, but must be at most 256 or 'auto'"),
        ("limits: {max_seq_len: 0}", "limits.max_seq_len is 0, but must be at least 1 or 'auto'"),
        ("limits: 5", "limits is 5, but must be a mapping of max_batch_size, "),
        ("trust_remote_code: 1", "trust_remote_code is 1, but must be true or false"),
        ("price_per_gpu_hour: .inf", "price_per_gpu_hour is Infinity, but must be a finite number"),
        ("price_per_gpu_hour: 0", "price_per_gpu_hour is 0, but must be more than 0"),
        ("workspace: ''", 'workspace is "", but must be not empty'),
        ("hardware: {gpu: 4090}", "hardware.gpu is 4090, but must be text (put it in quotes)"),
        ("workload: {concurrency: 0}", "workload.concurrency is 0, but must be at least 1"),
        ("workload: {concurrency: [4, 0]}", "workload.concurrency is [4, 0], but must be"),
        ("draft: {path: d, gpus: [-1]}", "draft.gpus is -1, but must be at least 0"),
        ("workload: {concurrency: many}", "must be a whole number or a list"),
        ("serving: {grpc_port: 70000}", "serving.grpc_port is 70000, but must be at most 65535"),
    ],
)
def test_a_value_of_the_wrong_type_or_size_is_refused_with_its_line(
    tmp_path: Path, setting: str, complaint: str
) -> None:
    message = refusal(tmp_path, f"target: {{path: t}}\n{setting}\n")
    assert message.startswith("specdeploy.yaml:2: ")
    assert complaint in message


def test_a_version_that_yaml_reads_as_a_number_is_refused(tmp_path: Path) -> None:
    # 1.10 would become 1.1, another release.
    message = refusal(tmp_path, "target: {path: t}\nruntime: {trtllm_version: 1.10}\n")
    assert "put it in quotes" in message


def test_a_misspelt_word_is_answered_with_the_nearest_allowed_one(tmp_path: Path) -> None:
    message = refusal(tmp_path, "target: {path: t}\nobjective: latencyy\n")
    assert "'latency', 'throughput' or 'cost'; did you mean 'latency'?" in message


@pytest.mark.parametrize("method", [*LATER_METHODS, "Medusa"])
def test_a_method_of_a_later_release_is_refused_with_those_of_this_one(
    tmp_path: Path, method: str
) -> None:
    message = refusal(tmp_path, f"target: {{path: t}}\nmethod: {method}\n")
    assert f"{method} is not in this release, which has none, draft_target, ngram" in message


def test_a_newer_file_is_refused_by_its_version(tmp_path: Path) -> None:
    message = refusal(tmp_path, "target: {path: t}\nschema_version: 2\n")
    assert message.startswith("specdeploy.yaml:2: ")
    assert "schema_version 2 is not supported" in message


def test_a_missing_target_says_how_to_give_one(tmp_path: Path) -> None:
    message = refusal(tmp_path, "method: ngram\n")
    assert message == "target is missing; set target.path, or pass --target"


def test_a_missing_path_points_at_its_section(tmp_path: Path) -> None:
    message = refusal(tmp_path, "method: ngram\ntarget:\n  tp: 1\n")
    assert message == "specdeploy.yaml:2: target.path is missing"


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, "target: {path: t}\n", SPECDEPLOY_DRAFT_LENGTH="many")
    assert message.startswith("environment SPECDEPLOY_DRAFT_LENGTH: draft_length is")


def test_a_variable_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, "method: ngram\n", SPECDEPLOY_TARGET__PATH="\udcff")
    assert message.endswith("but must be text in UTF-8")


def test_a_list_that_contains_itself_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, "target: {path: t, gpus: &again [*again]}\n")
    assert "target.gpus is" in message


def test_a_long_value_is_cut_short(tmp_path: Path) -> None:
    message = refusal(tmp_path, f"target: {{path: t}}\nobjective: {'x' * 500}\n")
    assert len(message) < 300


def test_an_infinite_temperature_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, "target: {path: t}\nsampling: {temperature: .inf}\n")
    assert "a finite number" in message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("999", "draft_length is 999, but must be at most 256 or 'auto'"),
        ("-1", "draft_length is -1, but must be at least 0 or 'auto'"),
        ("4.5", "draft_length is \"4.5\", but must be a whole number or 'auto'"),
    ],
)
def test_a_variable_out_of_range_is_refused_with_the_range(
    tmp_path: Path, text: str, complaint: str
) -> None:
    told = refusal(tmp_path, "target: {path: t}\n", SPECDEPLOY_DRAFT_LENGTH=text)
    assert complaint in told
