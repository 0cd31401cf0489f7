"""``speculative_config`` as one release spells it, and the settings that change answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from specdeploy.core.release_profile import ReleaseProfile
from specdeploy.core.schedule import ScheduleTier, schedule_floor, schedule_keys
from specdeploy.errors import ConfigError
from specdeploy.runtimes.llmapi_question import LlmQuestion, Speculation

# Setting -> (method, the keys that it writes).
_LOSSY: Final = {
    "relaxed_topk": ("mtp", "relaxed_topk"),
    "relaxed_delta": ("mtp", "relaxed_delta"),
    "posterior_threshold": ("eagle3", "posterior_threshold"),
}
_GREEDY: Final = (
    "sampled requests are answered greedily: this release verifies by the best token only"
)


def speculative_config(asked: LlmQuestion, spec: Speculation) -> dict[str, object]:
    """Return the section; every key is one of the release.

    Raises:
        ConfigError: a setting that the method or the release does not have, or a lossy one
            without ``allow_lossy``.
    """
    method, base = asked.profile.llm_methods[spec.method], _base_keys(asked.profile)
    config: dict[str, object] = {"decoding_type": method.tag}
    config |= dict.fromkeys(method.length_keys, spec.draft_length)
    if spec.draft is not None:
        # An alias in every release that has the longer name as well.
        key = "speculative_model" if "speculative_model" in base else "speculative_model_dir"
        config[key] = spec.draft
    if spec.method == "ngram":
        config["max_matching_ngram_size"] = asked.deployment.serving.max_ngram_size
    if "eagle3_one_model" in method.fields:
        config["eagle3_one_model"] = True
    if _samples_by_switch(asked):
        config["allow_advanced_sampling"] = True
    tiers = usable_tiers(asked, spec)
    keys = schedule_keys(tiers, asked.profile.draft_len_schedule.keys) if tiers else None
    if keys is not None:
        config["draft_len_schedule"] = keys
    return config | _lossy_keys(asked, spec)


def usable_tiers(asked: LlmQuestion, spec: Speculation) -> list[ScheduleTier]:
    """Return the tiers that are written; empty: the draft length is the same for every batch.

    They end at the largest batch, never go over the draft length, and never under the length
    below which the drafter would lose its state.
    """
    if any(_schedule_hindrances(asked, spec)):
        return []
    largest = asked.deployment.limits.max_batch_size
    floor = schedule_floor(spec.method, asked.profile.draft_len_schedule.keys)
    tiers: list[ScheduleTier] = []
    for tier in asked.deployment.tuned.tiers:
        length = max(floor, min(tier.draft_length, spec.draft_length))
        if tier.from_batch > largest:
            break
        if tiers and tiers[-1].draft_length == length:
            tiers[-1] = tiers[-1].evolve(to_batch=tier.to_batch)
        else:
            tiers.append(tier.evolve(draft_length=length))
    tiers[-1] = tiers[-1].evolve(to_batch=largest)
    return tiers if len(tiers) > 1 else []


def speculation_notes(asked: LlmQuestion, spec: Speculation) -> Iterator[str]:
    """Yield what to know of the section beside its keys."""
    if asked.deployment.llmapi.schedule and asked.deployment.tuned.tiers:
        yield from _schedule_hindrances(asked, spec)
        yield from _raised(asked, spec)
    if _greedy_only(asked):
        yield _GREEDY
    method = asked.profile.llm_methods[spec.method]
    if not method.length_keys:
        yield f"draft_length is not written, {method.tag} chooses: {' '.join(method.rules)}"


def lossy_settings(asked: LlmQuestion) -> list[str]:
    """Return the settings with which answers are not the target's own, in words."""
    settings = asked.deployment.llmapi
    given = [name for name in _LOSSY if getattr(settings, name) is not None]
    return [f"llmapi.{name} {getattr(settings, name)}" for name in given]


def require_lossless_sampling(asked: LlmQuestion) -> None:
    """Refuse sampled answers where the release would answer greedily.

    Raises:
        ConfigError: sampling.temperature is above 0, and lossy answers are not allowed.
    """
    sampled = asked.deployment.sampling.temperature > 0
    if sampled and _greedy_only(asked) and not asked.deployment.allow_lossy:
        raise ConfigError(
            f"sampling.temperature is above 0, and in TensorRT-LLM {asked.version} {_GREEDY}",
            hint="set sampling.temperature 0, or allow_lossy true to serve it so",
        )


def _base_keys(profile: ReleaseProfile) -> frozenset[str]:
    return frozenset(profile.llm_sections["speculative_config"].fields)


def _samples_by_switch(asked: LlmQuestion) -> bool:
    """Tell whether sampled requests need a switch; with rejection sampling it does nothing."""
    base = _base_keys(asked.profile)
    has_switch = "allow_advanced_sampling" in base and "use_rejection_sampling" not in base
    return asked.drafter_inside and has_switch and not _is_mtp(asked)


def _greedy_only(asked: LlmQuestion) -> bool:
    """Tell whether a drafter inside the engine is verified by the best token only.

    Releases with rejection sampling verify sampled requests; before them there is a switch,
    which MTP does not obey, and before that nothing.
    """
    if not asked.drafter_inside or "use_rejection_sampling" in _base_keys(asked.profile):
        return False
    return not _samples_by_switch(asked)


def _is_mtp(asked: LlmQuestion) -> bool:
    return asked.speculation is not None and asked.speculation.method == "mtp"


def _schedule_hindrances(asked: LlmQuestion, spec: Speculation) -> Iterator[str]:
    """Yield why tuning's schedule is not written."""
    settings, tiers = asked.deployment.llmapi, asked.deployment.tuned.tiers
    reading = asked.profile.draft_len_schedule
    if not settings.schedule or not tiers:
        yield "there is no schedule"
    elif reading.keys == "absent":
        yield f"TensorRT-LLM {asked.version} has no draft_len_schedule: one length for all"
    elif spec.method not in reading.methods:
        yield f"method {spec.method} takes no draft_len_schedule in this release"
    elif tiers[0].draft_length < spec.draft_length:
        yield (
            f"the schedule of tuning.json starts at {tiers[0].draft_length}, not at draft_length "
            f"{spec.draft_length}, and is left out"
        )


def _raised(asked: LlmQuestion, spec: Speculation) -> Iterator[str]:
    floor = schedule_floor(spec.method, asked.profile.draft_len_schedule.keys)
    written: Sequence[ScheduleTier] = usable_tiers(asked, spec)
    low = [tier for tier in asked.deployment.tuned.tiers if tier.draft_length < floor]
    if written and low:
        yield (
            f"the schedule never falls below {floor}: the drafter's state goes stale while "
            "nothing is drafted"
        )


def _lossy_keys(asked: LlmQuestion, spec: Speculation) -> dict[str, object]:
    keys: dict[str, object] = {}
    for name, (method, key) in _LOSSY.items():
        value = getattr(asked.deployment.llmapi, name)
        if value is None:
            continue
        _require_lossy(asked, spec, name=name, method=method, key=key)
        keys[key] = value
    if "relaxed_topk" in keys or "relaxed_delta" in keys:
        keys["use_relaxed_acceptance_for_thinking"] = True
    return keys


def _require_lossy(
    asked: LlmQuestion, spec: Speculation, *, name: str, method: str, key: str
) -> None:
    if spec.method != method:
        raise ConfigError(f"llmapi.{name} is for method {method}, not for {spec.method}")
    if key not in asked.profile.llm_methods[method].fields:
        raise ConfigError(
            f"TensorRT-LLM {asked.version} has no {key}",
            hint=f"leave llmapi.{name} out: this release verifies by the target alone",
        )
    if not asked.deployment.allow_lossy:
        raise ConfigError(
            f"llmapi.{name} changes what the target would answer",
            hint="allow_lossy: true permits it; every output then says so",
        )
