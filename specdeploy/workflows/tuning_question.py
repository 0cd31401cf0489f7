"""From settings, checkpoints, GPUs and acceptance to the question that is searched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from specdeploy.core.acceptance import AcceptanceProfile, MixedCurve, given_profile, mix
from specdeploy.core.acceptance_presets import PREFIX, preset_profile
from specdeploy.core.config import CategoryMix, ModelSection
from specdeploy.core.devices import Machine, planning_gpus
from specdeploy.core.hardware import GpuSpec, find_gpu
from specdeploy.core.kv_cache import resolve_kv_dtype
from specdeploy.core.memory import GpuMemory
from specdeploy.core.models import ModelSpec
from specdeploy.core.nearest import did_you_mean
from specdeploy.core.precision import AUTO
from specdeploy.core.resolution import LoadedConfig
from specdeploy.core.tuner.question import Candidate, Fixed
from specdeploy.core.tuning import ChosenPoint
from specdeploy.errors import ConfigError
from specdeploy.units import MIB
from specdeploy.workflows.tuning_ports import TuningFiles

LOOKUP: Final = Candidate("ngram", "ngram")


@dataclass(frozen=True, slots=True)
class Gpus:
    """What there is to serve on; ``count`` is None when nobody said how many."""

    gpu: GpuSpec
    memory: GpuMemory
    count: int | None
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Acceptances:
    """Acceptance by the name of a candidate, and in words where it comes from."""

    profiles: Mapping[str, AcceptanceProfile]

    def of(self, name: str, weights: CategoryMix) -> MixedCurve | None:
        """Return a candidate's acceptance for the workload's mix; None: nobody knows it."""
        profile = self.profiles.get(name)
        return None if profile is None else mix(profile, weights)

    @property
    def source(self) -> str | None:
        """Say where the numbers come from."""
        told = [f"{name}: {profile.source}" for name, profile in self.profiles.items()]
        return "; ".join(told) or None

    @property
    def warnings(self) -> list[str]:
        """Say whose acceptance a preset is."""
        return [
            f"acceptance of {name} is the preset {profile.source.removeprefix(PREFIX)}: "
            f"{profile.assumptions[0]}"
            for name, profile in self.profiles.items()
            if profile.source.startswith(PREFIX)
        ]


def find_gpus(loaded: LoadedConfig, machine: Machine | None) -> Gpus:
    """Return the named GPU, or this machine's own.

    Args:
        loaded: The settings.
        machine: This machine's GPUs; None when a GPU is named.

    Raises:
        ConfigError: no such GPU, or more than there are.
        MissingToolError: none is named, and there is none here.
    """
    hardware = loaded.config.hardware
    if machine is None:
        gpu = find_gpu(hardware.gpu or "")
        return Gpus(gpu, GpuMemory.of(gpu), hardware.count)
    plannable = planning_gpus(machine, None)
    count = hardware.count or len(plannable)
    if count > len(plannable):
        raise ConfigError(
            f"hardware.count is {count} ({loaded.source('hardware.count')}), and there are "
            f"{len(plannable)} GPUs here",
            hint="name the GPU to plan for with --gpu NAME",
        )
    used = sorted(zip(plannable, machine.devices, strict=True), key=lambda gpu: -gpu[0].bytes)
    # The fullest of those that are used decides: every rank holds the same.
    planned, device = used[count - 1]
    gpu = _known(planned.name, device.total_bytes or planned.bytes, planned.sm)
    total = device.total_bytes or gpu.memory_mib * MIB
    told = f"{count} x {planned.name} of this machine, {planned.bytes / MIB:,.0f} MiB free each"
    memory = GpuMemory(total, free_bytes=planned.bytes, other_bytes=device.used_bytes or 0)
    return Gpus(gpu, memory, count, (told,))


def fixed_of(loaded: LoadedConfig) -> Fixed:
    """Return what the user decided; ``auto`` and defaults are searched."""
    config, limits = loaded.config, loaded.config.limits
    draft = config.draft
    return Fixed(
        draft_length=number_or_none(config.draft_length),
        max_batch_size=number_or_none(limits.max_batch_size),
        max_num_tokens=number_or_none(limits.max_num_tokens),
        target_tp=config.target.tp if _was_given(loaded, "target.tp") else None,
        draft_tp=draft.tp if draft and _was_given(loaded, "draft.tp") else None,
        target_kv_dtype=None if config.target.kv_dtype == AUTO else config.target.kv_dtype,
        draft_kv_dtype=None if draft is None or draft.kv_dtype == AUTO else draft.kv_dtype,
    )


def candidates_of(
    loaded: LoadedConfig, drafts: Mapping[str, ModelSpec], acceptances: Acceptances
) -> tuple[Candidate, ...]:
    """Return the ways to draft: every draft model, and prompt lookup unless a method is set."""
    config = loaded.config
    if config.method == "none" or config.draft_length == 0:
        return ()
    precision = config.draft.precision if config.draft else AUTO
    models = [
        Candidate(name, "draft_target", spec, precision)
        for name, spec in drafts.items()
        if config.method == "draft_target"
    ]
    free = not _was_given(loaded, "method")
    found = [*models, LOOKUP] if free or config.method == "ngram" else models
    weights = config.workload.categories
    return tuple(
        replace(candidate, acceptance=acceptances.of(candidate.name, weights))
        for candidate in found
    )


def read_acceptances(
    words: Sequence[str], names: Sequence[str], *, cwd: Path, files: TuningFiles
) -> Acceptances:
    """Return what ``--acceptance`` says, each word ``[NAME=]A``, a file or ``preset:NAME``.

    A word without a name is about the first candidate.

    Raises:
        ConfigError: no such candidate, file or preset, a number that is no share, or two for one.
    """
    profiles: dict[str, AcceptanceProfile] = {}
    for word in words:
        name, profile = _named(word, names, cwd, files)
        if name in profiles:
            raise ConfigError(
                f"--acceptance {word}: that of {name} is given already",
                hint=f"write NAME=... for another way to draft: {', '.join(names)}",
            )
        profiles[name] = profile
    return Acceptances(profiles)


def _named(
    word: str, names: Sequence[str], cwd: Path, files: TuningFiles
) -> tuple[str, AcceptanceProfile]:
    name, separator, value = word.partition("=")
    if not separator:
        return names[0], read_profile(word, cwd=cwd, files=files)
    if name not in names:
        raise ConfigError(
            f"--acceptance {word}: there is no way to draft called {name!r}"
            f"{did_you_mean(name, names)}",
            hint=f"there are {', '.join(names)}",
        )
    return name, read_profile(value, cwd=cwd, files=files)


def read_profile(value: str, *, cwd: Path, files: TuningFiles) -> AcceptanceProfile:
    """Return what a number, a file or ``preset:NAME`` says of acceptance.

    Raises:
        ConfigError: no such file or preset, or a number that is no share.
    """
    if value.startswith(PREFIX):
        return preset_profile(value.removeprefix(PREFIX))
    try:
        number = float(value)
    except ValueError:
        return files.read_acceptance(cwd / value)
    return given_profile(number)


def open_settings(loaded: LoadedConfig) -> Iterator[str]:
    """Yield what a search leaves to the checkpoint or takes from a default."""
    if not _was_given(loaded, "objective"):
        yield "objective latency (objective is not set)"


def settings_to_write(
    choice: ChosenPoint, loaded: LoadedConfig, models: Mapping[str, ModelSpec]
) -> Iterator[str]:
    """Yield the settings of the choice that the file says otherwise, and no build takes over.

    Args:
        choice: What was chosen.
        loaded: The settings.
        models: The target as ``target``, and every draft by its name.
    """
    config = loaded.config
    target, draft = config.target, config.draft
    yield from _differing(
        "target", target, models["target"], choice.target_tp, choice.target_kv_dtype
    )
    if choice.draft_length == 0:
        return
    if choice.method != config.method:
        yield f"method: {choice.method}"
    if choice.draft is None or draft is None or choice.draft_tp is None:
        return
    if Path(draft.path).name != choice.draft:
        yield f"draft.path: the one called {choice.draft}"
    spec = models[choice.draft]
    yield from _differing("draft", draft, spec, choice.draft_tp, choice.draft_kv_dtype)


def _differing(
    role: str, section: ModelSection, spec: ModelSpec, tp: int, kv_dtype: str | None
) -> Iterator[str]:
    if section.tp != tp:
        yield f"{role}.tp: {tp}"
    if resolve_kv_dtype(section.kv_dtype, spec) != kv_dtype:
        yield f"{role}.kv_dtype: {kv_dtype}"


def _known(name: str, total_bytes: int, sm: int | None) -> GpuSpec:
    try:
        return find_gpu(name)
    except ConfigError:
        if sm is None:
            raise
        return find_gpu(f"custom:{total_bytes // MIB}:{sm // 10}.{sm % 10}")


def number_or_none(value: int | str) -> int | None:
    """Return a number; None for ``auto``."""
    return value if isinstance(value, int) else None


def _was_given(loaded: LoadedConfig, key: str) -> bool:
    return loaded.source(key).kind != "default"
