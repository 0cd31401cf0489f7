"""Which record describes which file or ``--json`` output; imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final

from specdeploy.core.record import Record

# name in docs/schema -> module:class
SCHEMAS: Final[Mapping[str, str]] = {
    "config": "specdeploy.core.config:Config",
    "acceptance": "specdeploy.core.acceptance:AcceptanceProfile",
    "estimate": "specdeploy.core.estimate:Estimate",
    "measured-loads": "specdeploy.core.tuner.measured:MeasuredLoads",
    "tuning": "specdeploy.core.tuning:Tuning",
    "tuning-report": "specdeploy.core.tuning:TuningReport",
    "calibration": "specdeploy.core.speed.calibration:Calibration",
    "build-plan": "specdeploy.core.build:BuildPlan",
    "build-report": "specdeploy.core.artifacts:BuildReport",
    "manifest": "specdeploy.core.build:EngineManifest",
    "verify-report": "specdeploy.core.artifacts:VerifyReport",
    "repository": "specdeploy.core.repository:ModelRepository",
    "server": "specdeploy.core.serving:ServerRecord",
    "stop-report": "specdeploy.core.serving:StopReport",
    "answer": "specdeploy.core.generation:Answer",
    "comparison": "specdeploy.core.comparison:ComparisonReport",
    "check-report": "specdeploy.core.compat:CompatReport",
    "doctor-report": "specdeploy.core.doctor:DoctorReport",
    "inspection": "specdeploy.core.inspection:Inspection",
    "effective-settings": "specdeploy.core.effective:EffectiveSettings",
    "started-file": "specdeploy.core.starter:StartedFile",
    "schema-list": "specdeploy.schemas:SchemaList",
}
# Written by people or by other releases: what has a default may be left out.
_READ: Final = frozenset({"config", "acceptance", "measured-loads", "tuning"})


class SchemaList(Record):
    """What ``specdeploy schema --list --json`` prints."""

    schemas: list[str]


def record_of(name: str) -> type[Record]:
    """Return the record class behind a schema's name."""
    module, _, attribute = SCHEMAS[name].partition(":")
    record = getattr(importlib.import_module(module), attribute)
    assert isinstance(record, type)  # noqa: S101 - a broken table is a bug
    assert issubclass(record, Record)  # noqa: S101 - same
    return record


def json_schema(name: str) -> dict[str, object]:
    """Return the JSON Schema (draft 2020-12) of a file or output."""
    schema = record_of(name).model_json_schema(
        mode="validation" if name in _READ else "serialization"
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
