"""Triton custom metrics of speculation, the same for both shapes. Plain Python; no torch.

``pb_utils`` is passed in, so that tests need no server.
"""

from __future__ import annotations

import threading
from typing import Any, Final, final

BUCKETS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 13.0, 17.0, 33.0)


@final
class SpeculationMetrics:
    """Counters over all requests of one model, under ``specdeploy_`` names. Thread safe."""

    def __init__(self, pb_utils: Any, *, model: str) -> None:  # noqa: ANN401 - Triton's module
        self._labels = {"model": model}
        # Triton 2.51 dies (a length error in libtriton_python) when two threads of one model
        # update metrics at the same time.
        self._lock = threading.Lock()
        self._families: list[Any] = []
        counter = pb_utils.MetricFamily.COUNTER
        self._drafted = self._metric(pb_utils, "drafted_tokens_total", "Drafted tokens", counter)
        self._accepted = self._metric(
            pb_utils, "accepted_tokens_total", "Drafted tokens that were accepted", counter
        )
        self._steps = self._metric(pb_utils, "steps_total", "Draft-then-verify rounds", counter)
        self._requests = self._metric(pb_utils, "requests_total", "Requests answered", counter)
        family = pb_utils.MetricFamily(
            name="specdeploy_tokens_per_step",
            description="Tokens emitted per step, bonus included",
            kind=pb_utils.MetricFamily.HISTOGRAM,
        )
        self._families.append(family)
        self._tokens_per_step = family.Metric(labels=self._labels, buckets=list(BUCKETS))

    def step(self, *, drafted: int, accepted: int, emitted: int) -> None:
        """Count one step."""
        with self._lock:
            self._steps.increment(1)
            if drafted:
                self._drafted.increment(drafted)
            if accepted:
                self._accepted.increment(accepted)
            self._tokens_per_step.observe(emitted)

    def request_finished(self) -> None:
        """Count one answered request."""
        with self._lock:
            self._requests.increment(1)

    def _metric(self, pb_utils: Any, name: str, description: str, kind: Any) -> Any:  # noqa: ANN401
        family = pb_utils.MetricFamily(
            name=f"specdeploy_{name}", description=description, kind=kind
        )
        self._families.append(family)
        return family.Metric(labels=self._labels)
