"""One step of a build: its command, and what it wrote against the plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specdeploy.core.build import BuildStep
from specdeploy.core.command_failures import recognise_failure
from specdeploy.core.engine_config import config_mismatches
from specdeploy.errors import ArtifactError, CommandFailedError
from specdeploy.units import format_bytes
from specdeploy.workflows.workbench import Workbench


def run_step(argv: Sequence[str], step: BuildStep, bench: Workbench) -> None:
    """Run a step's command.

    Raises:
        MissingToolError: the program is not there.
        CommandFailedError: it failed; a failure that is known is told in one sentence.
    """
    log = bench.store.next_log(step.log_name)
    try:
        bench.runner.run(argv, log=log)
    except CommandFailedError as error:
        failure = recognise_failure(bench.store.read_log(log), error.status)
        if failure is None:
            raise
        remedy = failure.remedy
        if failure.kind == "space" and step.disk_bytes:
            remedy = f"{remedy} (the step needs about {format_bytes(step.disk_bytes)})"
        raise CommandFailedError(
            argv,
            error.status,
            log,
            error.tail,
            cause=(f"the {step.title}: {failure.sentence}", remedy),
        ) from error


def require_as_planned(staging: Path, step: BuildStep, bench: Workbench) -> None:
    """Hold what a step wrote against its plan.

    Raises:
        ArtifactError: its config.json says something else.
    """
    if not step.expected:
        return
    mismatches = list(config_mismatches(bench.artifacts.read_config(staging), step.expected))
    if mismatches:
        raise ArtifactError(
            f"the {step.title} is not as planned: {'; '.join(mismatches)}",
            hint="the tools did not do what this version's do; the last log of the step says what",
        )
