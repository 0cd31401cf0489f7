"""The rates of a GPU, those of a card that is in no table included."""

from __future__ import annotations

from dataclasses import dataclass

from specdeploy.core.hardware import GPUS, GpuRates, GpuSpec
from specdeploy.core.precision import MatmulUnit
from specdeploy.core.speed.constants import Constants


@dataclass(frozen=True, slots=True)
class KnownRates:
    """Rates, and the name of the card that they were taken from when it is another one."""

    rates: GpuRates
    assumed_from: str | None = None


def rates_of(gpu: GpuSpec) -> KnownRates:
    """Return the rates of ``gpu``, or of the nearest known card.

    Nearest is the same compute capability, else the closest one; then the closest memory.
    """
    if gpu.rates is not None:
        return KnownRates(gpu.rates)
    known = [(other, other.rates) for other in GPUS if other.rates is not None]
    near, rates = min(
        known,
        key=lambda pair: (abs(pair[0].sm - gpu.sm), abs(pair[0].memory_mib - gpu.memory_mib)),
    )
    return KnownRates(rates, assumed_from=near.name)


def products_per_s(rates: GpuRates, unit: MatmulUnit, constants: Constants) -> float:
    """Return the floating-point operations per second that large products reach.

    A card without the unit multiplies in the next wider one that it has, int8 in 16 bit.
    """
    ladder = {
        "fp4": (rates.fp4_tflops, constants.fp4_efficiency),
        "fp8": (rates.fp8_tflops, constants.fp8_efficiency),
        "int8": (rates.int8_tops, constants.fp8_efficiency),
        "half": (rates.half_tflops, constants.half_efficiency),
    }
    wider: dict[MatmulUnit, tuple[MatmulUnit, ...]] = {
        "fp4": ("fp4", "fp8", "half"),
        "fp8": ("fp8", "half"),
        "int8": ("int8", "half"),
        "half": ("half",),
    }
    peak, share = next((ladder[name] for name in wider[unit] if ladder[name][0]), ladder["half"])
    return peak * 1e12 * share
