"""A pair on its GPUs, with everything that does not depend on the load."""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import Self

from specdeploy.core.hardware import GpuSpec
from specdeploy.core.served import ServedPair
from specdeploy.core.speed.constants import Constants
from specdeploy.core.speed.steps import Machine, machine_of


@dataclass(frozen=True, slots=True)
class Serving:
    """A pair on its GPUs; ``draft`` is None for prompt lookup and without speculation."""

    pair: ServedPair
    target: Machine
    draft: Machine | None
    constants: Constants

    @classmethod
    def of(cls, pair: ServedPair, gpu: GpuSpec, constants: Constants) -> Self:
        """Return ``pair`` on ``gpu``."""
        draft = machine_of(pair.draft, gpu, constants) if pair.draft is not None else None
        return cls(pair, machine_of(pair.target, gpu, constants), draft, constants)

    def using(self, constants: Constants) -> Self:
        """Return the same with other constants."""
        draft = replace(self.draft, constants=constants) if self.draft is not None else None
        target = replace(self.target, constants=constants)
        return replace(self, target=target, draft=draft, constants=constants)
