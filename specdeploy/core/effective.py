"""Every setting as it takes effect, and who decided it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from pydantic import Field

from specdeploy.core.config import ModelSection
from specdeploy.core.precision import AUTO
from specdeploy.core.record import Document, Record
from specdeploy.core.resolution import (
    LoadedConfig,
    Located,
    decide,
    precision_of,
    shape_of,
    shorter_context,
)
from specdeploy.core.settings import Source, leaf_fields

SettingValue = bool | int | float | str | list[int] | None


class Setting(Record):
    """One setting's effective value."""

    key: str = Field(description="Dotted key, as --set takes it.")
    value: SettingValue
    source: Source


class EffectiveSettings(Document):
    """What ``specdeploy config`` prints."""

    file: str | None = Field(description="The file read, or null when there was none.")
    workspace: str = Field(description="Absolute path.")
    tuning: str | None = Field(description="The tuning file read, or null.")
    settings: list[Setting]
    unused: list[str] = Field(description="Settings given that this release does not act on.")


def effective_settings(
    loaded: LoadedConfig, *, target: Located | None, draft: Located | None
) -> EffectiveSettings:
    """Return every setting; without the target's facts, what it decides stays ``auto``.

    Raises:
        ConfigError: settings do not fit the models.
    """
    decided = dict(_decided(loaded, target, draft))
    settings = [
        decided.get(key) or Setting(key=key, value=_value(loaded, key), source=loaded.source(key))
        for key in leaf_fields()
        if loaded.config.draft or not key.startswith("draft.")
    ]
    return EffectiveSettings(
        file=loaded.file,
        workspace=loaded.workspace,
        tuning=loaded.tuning.path if loaded.tuning else None,
        settings=settings,
        unused=loaded.unused,
    )


def _value(loaded: LoadedConfig, key: str) -> SettingValue:
    value: SettingValue = reduce(getattr, key.split("."), loaded.config)  # type: ignore[assignment]
    return value


def _decided(
    loaded: LoadedConfig, target: Located | None, draft: Located | None
) -> Iterator[tuple[str, Setting]]:
    context = shorter_context(target.spec, draft.spec if draft else None) if target else None
    for key, number in decide(loaded, context).items():
        yield key, Setting(key=key, value=number.value, source=number.source)
    shape = "runtime.shape"
    yield shape, Setting(key=shape, value=shape_of(loaded.config), source=loaded.source(shape))
    sections = {"target": loaded.config.target, "draft": loaded.config.draft}
    for role, model in (("target", target), ("draft", draft)):
        section = sections[role]
        if section and model:
            yield from _of_model(loaded, role, section, model)


def _of_model(
    loaded: LoadedConfig, role: str, section: ModelSection, model: Located
) -> Iterator[tuple[str, Setting]]:
    path, precision = f"{role}.path", f"{role}.precision"
    yield path, Setting(key=path, value=model.path, source=loaded.source(path))
    if section.precision == AUTO:
        served = precision_of(section, model.spec, role=role)
        stored = Source(kind="checkpoint", name=f"stored {model.spec.dtype}")
        yield precision, Setting(key=precision, value=served, source=stored)
