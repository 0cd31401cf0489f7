from __future__ import annotations

from typing import get_args

import pytest

from specdeploy.core.config import NOT_USED_YET, KvDtype, Precision
from specdeploy.core.kv_cache import KV_BITS
from specdeploy.core.precision import AUTO, PRECISIONS
from specdeploy.core.settings import (
    ConfigFile,
    Given,
    Source,
    layer_of_environment,
    layer_of_file,
    layer_of_flags,
    leaf_fields,
    merge,
    nest,
    parse_text,
    sections,
    variable_of_key,
)
from specdeploy.errors import ConfigError


def environment(**variables: str) -> dict[str, Given]:
    return dict(layer_of_environment(variables, base="/here"))


def refusal_of(**variables: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        environment(**variables)
    return caught.value


def test_the_file_takes_every_format_that_is_planned_for() -> None:
    assert list(get_args(Precision)) == [AUTO, *PRECISIONS]
    assert list(get_args(KvDtype)) == [AUTO, *KV_BITS]


def test_every_setting_of_the_issue_has_a_key() -> None:
    named = {
        *("target.path", "target.precision", "target.kv_dtype", "target.tp", "target.gpus"),
        *("draft.path", "draft.precision", "draft.kv_dtype", "draft.tp", "draft.gpus"),
        *("runtime.name", "runtime.shape", "runtime.trtllm_version", "runtime.container"),
        *("runtime.executor", "draft_length", "limits.max_batch_size", "limits.max_num_tokens"),
        *("limits.max_seq_len", "hardware.gpu", "hardware.count", "workload.input_len"),
        *("workload.output_len", "workload.concurrency", "workload.categories.code"),
        *("workload.categories.long_answer", "workload.slo.ttft_ms", "objective", "method"),
        *("price_per_gpu_hour", "allow_lossy", "trust_remote_code", "workspace"),
        *("schema_version", "sampling.temperature", "serving.grpc_port"),
    }
    assert named <= leaf_fields().keys()


def test_every_key_called_unused_exists() -> None:
    assert set(NOT_USED_YET) <= leaf_fields().keys() | sections().keys()


def test_a_variable_sets_the_key_it_is_named_after() -> None:
    layer = environment(SPECDEPLOY_DRAFT_LENGTH="6", SPECDEPLOY_TARGET__PATH="t", OTHER="1")
    assert {key: given.value for key, given in layer.items()} == {
        "draft_length": 6,
        "target.path": "t",
    }
    assert str(layer["draft_length"].source) == "environment SPECDEPLOY_DRAFT_LENGTH"


@pytest.mark.parametrize("key", sorted(leaf_fields()))
def test_every_key_has_a_variable(key: str) -> None:
    assert list(environment(**{variable_of_key(key): "1"})) == [key]


def test_an_empty_variable_counts_as_unset() -> None:
    assert environment(SPECDEPLOY_DRAFT_LENGTH="") == {}


def test_a_misspelt_variable_is_refused_with_the_nearest_one() -> None:
    error = refusal_of(SPECDEPLOY_DRAFT_LENGHT="4")
    assert "SPECDEPLOY_DRAFT_LENGHT sets nothing" in str(error)
    assert "did you mean 'SPECDEPLOY_DRAFT_LENGTH'?" in str(error)


def test_a_variable_that_names_a_section_is_refused_with_its_keys() -> None:
    error = refusal_of(SPECDEPLOY_LIMITS="8")
    assert "names a section" in str(error)
    assert "SPECDEPLOY_LIMITS__MAX_SEQ_LEN" in str(error.hint)


def test_the_last_flag_wins() -> None:
    flags = [("--method", "method", "none"), ("--set method", "method", "ngram")]
    layer = layer_of_flags(flags, base="/here")
    assert layer["method"].value == "ngram"
    assert str(layer["method"].source) == "flag --set method"


def test_a_flag_for_an_unknown_setting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'sampling\.top_k'"):
        layer_of_flags([("--set", "sampling.topk", "8")], base="/here")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("draft_length", "4", 4),
        ("draft_length", "auto", "auto"),
        ("draft_length", "four", "four"),
        ("trust_remote_code", "true", True),
        ("sampling.top_p", "0.5", 0.5),
        ("target.gpus", "[0, 1]", [0, 1]),
        ("target.gpus", "[0", "[0"),
        ("runtime.trtllm_version", "1.10", "1.10"),
        ("target.path", "8", "8"),
        ("method", "medusa", "medusa"),
    ],
)
def test_text_becomes_the_type_of_its_setting(key: str, text: str, value: object) -> None:
    parsed = parse_text(key, text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_later_layer_wins_key_by_key() -> None:
    default = Source(kind="default")
    low = {"method": Given("none", default), "target.tp": Given(1, default)}
    high = {"method": Given("ngram", default)}
    merged = merge([low, high])
    assert {key: given.value for key, given in merged.items()} == {
        "method": "ngram",
        "target.tp": 1,
    }


def test_nesting_displaces_a_plain_value_where_a_section_belongs() -> None:
    default = Source(kind="default")
    given = {"target.path": Given("t", default), "target": Given(5, default)}
    assert nest(given) == {"target": {"path": "t"}}


def test_an_empty_section_of_a_file_counts_as_absent() -> None:
    file = ConfigFile(
        name="f", directory="/", values={"draft": None, "limits": None}, lines={"draft": 1}
    )
    assert layer_of_file(file) == {}
