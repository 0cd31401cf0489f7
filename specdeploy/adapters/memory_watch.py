"""Watches GPU memory from a thread while something else runs."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import ExitStack
from types import TracebackType
from typing import final

from typing_extensions import Self

from specdeploy.adapters.device_probe import MemorySampler, NvmlProbe
from specdeploy.core.devices import MemoryUse
from specdeploy.errors import MissingToolError


@final
class NvmlMemoryWatch:
    """Samples at the start, every ``interval_s`` seconds, and at the end.

    Args:
        probe: Knows the visible devices.
        interval_s: Seconds between two samples.
        pids: Count the memory of these processes only; the collection may change meanwhile.
            Drivers that do not tell memory by process (Windows's) then tell nothing.
    """

    def __init__(
        self, probe: NvmlProbe, *, interval_s: float, pids: Collection[int] | None = None
    ) -> None:
        self._probe, self._interval_s, self._pids = probe, interval_s, pids
        self._open = ExitStack()
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._uses: list[MemoryUse] = []
        self._error: str | None = None

    def __enter__(self) -> Self:
        try:
            sampler = self._open.enter_context(self._probe.sampler())
        except MissingToolError as error:
            self._error = str(error)
            return self
        self._uses = [
            MemoryUse(index=h.index, uuid=h.uuid, baseline_bytes=None, peak_bytes=None, samples=0)
            for h in sampler.handles
        ]
        self._sample(sampler)
        thread = threading.Thread(target=self._run, args=(sampler,), daemon=True)
        thread.start()
        self._open.callback(self._finish, thread, sampler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def error(self) -> str | None:
        """Why nothing is watched."""
        return self._error

    def uses(self) -> list[MemoryUse]:
        """Return baseline and peak of each device so far."""
        with self._guard:
            return list(self._uses)

    def _run(self, sampler: MemorySampler) -> None:
        while not self._stop.wait(self._interval_s):
            self._sample(sampler)

    def _finish(self, thread: threading.Thread, sampler: MemorySampler) -> None:
        self._stop.set()
        thread.join()
        self._sample(sampler)

    def _sample(self, sampler: MemorySampler) -> None:
        used = [sampler.used(handle, self._pids) for handle in sampler.handles]
        with self._guard:
            self._uses = [_with(use, size) for use, size in zip(self._uses, used, strict=True)]


def _with(use: MemoryUse, size: int | None) -> MemoryUse:
    if size is None:
        return use
    first = use.samples == 0
    return use.evolve(
        baseline_bytes=size if first else use.baseline_bytes,
        peak_bytes=max(size, use.peak_bytes or 0),
        samples=use.samples + 1,
    )
