"""The packaged profiles say what upstream's documents and code say."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from releases import profile_for, profiles, tables

from specdeploy.core.precision import PRECISIONS
from specdeploy.core.release_profile import ReleaseProfile
from specdeploy.core.versions import parse_version

ENGINE = [profile for profile in profiles() if "engine" in profile.paths]
LLMAPI = [profile for profile in profiles() if "llmapi" in profile.paths]


def named(profile: ReleaseProfile) -> str:
    return profile.name


@pytest.mark.parametrize("profile", profiles(), ids=named)
def test_every_source_that_a_profile_lists_is_used(profile: ReleaseProfile) -> None:
    assert {entry.source for _, entry in profile.entries()} == set(profile.sources)


@pytest.mark.parametrize("profile", profiles(), ids=named)
def test_every_source_names_something_to_look_up(profile: ReleaseProfile) -> None:
    for key, text in profile.sources.items():
        assert key in {"issues", "path"} or re.search(r"https://|[\w-]+/[\w-]+[@# ]", text), key


@pytest.mark.parametrize("profile", profiles(), ids=named)
def test_every_uncertain_fact_says_why(profile: ReleaseProfile) -> None:
    facts = dict(profile.entries())
    assert [where for where in profile.uncertain() if not facts[where].note] == []


@pytest.mark.parametrize("profile", profiles(), ids=named)
def test_a_profile_covers_the_versions_that_it_is_of(profile: ReleaseProfile) -> None:
    assert all(profile.covers(parse_version(text)) for text in profile.versions)


def test_no_version_has_two_profiles() -> None:
    versions = [text for profile in profiles() for text in profile.versions]
    assert len(set(versions)) == len(versions)
    for text in versions:
        assert sum(profile.covers(parse_version(text)) for profile in profiles()) == 1


def test_the_lines_of_both_ways_of_serving_are_there() -> None:
    engine = ["0.12", "0.13", "0.14", "0.15", "0.16", "0.17", "0.18", "0.19", "0.20", "0.21"]
    assert [profile.name for profile in ENGINE] == [*engine, "1.0", "1.1", "1.2"]
    newer = ["1.3rc2", "1.3rc8", "1.3rc20", "1.3rc27", "1.4"]
    assert [profile.name for profile in LLMAPI] == ["1.0", "1.1", "1.2", *newer]


@pytest.mark.parametrize("version", tables()["defaults"])
def test_flipped_defaults_are_those_of_the_release(version: str) -> None:
    profile = profile_for(version)
    names = ("max_batch_size", "use_paged_context_fmha", "tokens_per_block")
    *built, reuse = tables()["defaults"][version]
    for name, default in zip(names, built, strict=True):
        assert profile.flags[name].certain is (default != "?")
        assert default in {"?", profile.flags[name].default}
    key = "tensorrt_llm.enable_kv_cache_reuse"
    assert profile.template_defaults[key].value is reuse


@pytest.mark.parametrize("profile", ENGINE, ids=named)
def test_defaults_that_never_changed_are_the_same_in_every_release(profile: ReleaseProfile) -> None:
    constant = tables()["constant_defaults"]
    found = {name: profile.flags[name].default for name in constant}
    assert found == constant
    assert [type(found[name]) for name in constant] == [type(value) for value in constant.values()]


@pytest.mark.parametrize("flag", tables()["flags"])
def test_a_flag_is_there_from_its_first_release_until_it_is_refused(flag: str) -> None:
    first, refused = tables()["flags"][flag]
    for profile in ENGINE:
        version = parse_version(profile.versions[0])
        there = first is not None and version.key >= parse_version(first).key
        gone = refused is not None and version.key >= parse_version(refused).key
        assert (flag in profile.flags) is (there and not gone), profile.name
        assert (flag in profile.removed_flags) is gone, profile.name


@pytest.mark.parametrize("profile", ENGINE, ids=named)
def test_a_default_is_one_of_the_values(profile: ReleaseProfile) -> None:
    for name, flag in profile.flags.items():
        assert not flag.values or flag.default in {None, *flag.values}, name
        assert not flag.switch or flag.default is False, name


@pytest.mark.parametrize("variable", tables()["template_variables"])
def test_a_template_variable_is_there_from_its_first_release(variable: str) -> None:
    first = parse_version(tables()["template_variables"][variable])
    for profile in ENGINE:
        keys = profile.template_keys["tensorrt_llm"]
        there = parse_version(profile.versions[0]).key >= first.key
        assert (variable in {*keys.typed, *keys.text}) is there, profile.name


@pytest.mark.parametrize("version", tables()["typed_variables"])
def test_typed_variables_are_counted_as_in_the_templates(version: str) -> None:
    models = profile_for(version).template_keys.values()
    assert sum(len(model.typed) for model in models) == tables()["typed_variables"][version]


@pytest.mark.parametrize("profile", ENGINE, ids=named)
def test_a_default_is_told_only_for_a_variable_of_the_release(profile: ReleaseProfile) -> None:
    for place in profile.template_defaults:
        model, variable = place.split(".")
        keys = profile.template_keys[model]
        assert variable in {*keys.typed, *keys.text}, place


@pytest.mark.parametrize("version", tables()["llmapi"])
def test_the_spellings_of_the_llm_api_are_those_of_the_release(version: str) -> None:
    profile = profile_for(version)
    base = profile.llm_sections["speculative_config"].fields
    path = next(name for name in ("speculative_model", "speculative_model_dir") if name in base)
    assert tables()["llmapi"][version] == [
        profile.llm_methods["draft_target"].tag,
        profile.llm_methods["eagle3"].tag,
        path,
        profile.draft_len_schedule.keys,
        profile.acceptance_gate.window_key,
    ]


@pytest.mark.parametrize("version", tables()["llmapi_methods"])
def test_the_methods_of_the_llm_api_are_those_of_the_release(version: str) -> None:
    common = ["auto", "draft_target", "eagle3", "mtp", "ngram"]
    assert sorted(profile_for(version).llm_methods) == sorted(
        common + tables()["llmapi_methods"][version]
    )


@pytest.mark.parametrize("profile", LLMAPI, ids=named)
def test_what_the_schedule_and_the_gate_need_is_a_key_of_the_release(
    profile: ReleaseProfile,
) -> None:
    base = profile.llm_sections["speculative_config"].fields
    assert ("draft_len_schedule" in base) is (profile.draft_len_schedule.keys != "absent")
    gate = profile.acceptance_gate
    assert {gate.window_key, gate.threshold_key} - {None} <= set(base)
    assert (gate.unit == "none") is (gate.window_key is None)
    for method in profile.llm_methods.values():
        assert set(method.length_keys) <= {*base, *method.fields}


def test_the_length_of_mtp_is_written_under_both_keys_until_one_is_enough() -> None:
    both = ["max_draft_len", "num_nextn_predict_layers"]
    keys = {p.name: p.llm_methods["mtp"].length_keys for p in LLMAPI}
    assert [name for name in keys if keys[name] == both] == [
        "1.0",
        "1.1",
        "1.2",
        "1.3rc2",
        "1.3rc8",
    ]
    assert keys["1.3rc20"] == keys["1.3rc27"] == keys["1.4"] == ["max_draft_len"]


@pytest.mark.parametrize("profile", profiles(), ids=named)
def test_a_schedule_has_the_rules_of_its_keys(profile: ReleaseProfile) -> None:
    schedule = profile.draft_len_schedule
    assert schedule.must_contain_one is (schedule.keys == "lower")
    assert schedule.off_beyond_last is (schedule.keys == "upper")
    assert bool(schedule.methods) is (schedule.keys != "absent")


@pytest.mark.parametrize("profile", ENGINE, ids=named)
def test_a_precision_is_one_that_is_served_and_has_a_way_of_being_made(
    profile: ReleaseProfile,
) -> None:
    weights = {name for name in profile.precisions if not name.startswith("kv_")}
    assert weights <= set(PRECISIONS)
    assert set(profile.quantize_formats) == weights
    for wanted in profile.quantize_formats.values():
        assert wanted.script in {"convert", *profile.converters}


def test_fp8_needs_sm_89_and_nvfp4_a_blackwell() -> None:
    for profile in profiles():
        fp8 = profile.precisions["fp8"]
        assert all(sm >= 89 for sm in (*fp8.engine, *fp8.llmapi))
        if "nvfp4" in profile.precisions:
            nvfp4 = profile.precisions["nvfp4"]
            assert all(sm >= 100 for sm in (*nvfp4.engine, *nvfp4.llmapi))
    assert "nvfp4" not in profile_for("0.16.0").precisions


def test_a_gpu_never_loses_a_precision_in_a_later_release() -> None:
    for before, after in pairwise(ENGINE):
        for name, support in before.precisions.items():
            assert set(support.engine) <= set(after.precisions[name].engine), name


def test_converters_moved_in_0_20() -> None:
    paths = {p.name: p.converters["llama"].path for p in ENGINE}
    assert paths["0.19"] == "examples/llama/convert_checkpoint.py"
    assert paths["0.20"] == "examples/models/core/llama/convert_checkpoint.py"
    assert all(p.converters["medusa"].path.startswith("examples/medusa/") for p in ENGINE)


def test_a_method_appears_with_its_release() -> None:
    first = {
        method: next(p.name for p in ENGINE if method in p.engine_methods)
        for method in ENGINE[-1].engine_methods
    }
    assert first["draft_target"] == "0.12"
    assert (first["lookahead"], first["eagle"]) == ("0.13", "0.15")
    modes = {m.mode for p in ENGINE for m in p.engine_methods.values()}
    assert modes == {
        *("draft_tokens_external", "medusa", "explicit_draft_tokens"),
        *("lookahead_decoding", "eagle"),
    }


def test_lookahead_cannot_be_driven_through_triton_before_0_19() -> None:
    driven = [p.name for p in ENGINE if (m := p.engine_methods.get("lookahead")) and m.triton]
    assert driven[0] == "0.19"


def test_known_bad_combinations_come_and_go_with_the_release() -> None:
    assert [p.name for p in ENGINE if "fp8_fmha_sm120" in p.known_bad] == ["0.17", "0.18", "0.19"]
    assert profile_for("0.14.0").known_bad["fp8_context_fmha"].issue.endswith("#2447")
    assert "fp8_context_fmha" not in profile_for("0.16.0").known_bad


def test_the_builder_refuses_at_first_and_switches_off_later() -> None:
    for name in ("paged_fmha_with_int8_kv", "paged_fmha_with_fp8_kv_alone"):
        effects = {p.name: p.builder_rules[name].effect for p in ENGINE}
        assert [n for n in effects if effects[n] == "refuses"][-1] == "0.18"
        assert {effects[n] for n in ("0.19", "1.0", "1.2")} == {"turns_off"}
    assert all(
        rule.flag in profile.flags for profile in ENGINE for rule in profile.builder_rules.values()
    )
