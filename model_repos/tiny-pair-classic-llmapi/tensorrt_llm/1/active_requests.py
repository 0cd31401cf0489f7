"""The requests that are being served, so that one can be ended from outside."""

from __future__ import annotations

import threading
from typing import Any, final


@final
class ActiveRequest:
    """One request from its arrival to its last response.

    Args:
        request_id: The client's; may be empty and need not be unique.
        sender: Its response sender, which knows whether the client went away.
    """

    def __init__(self, request_id: str, sender: Any) -> None:  # noqa: ANN401 - Triton's type
        self.request_id = request_id
        self.sender = sender
        self._result: Any = None
        self._aborted = False
        self._lock = threading.Lock()

    def attach(self, result: Any) -> None:  # noqa: ANN401 - the engine's type
        """Name the engine's result; an abort that came before reaches it now."""
        with self._lock:
            self._result = result
            if self._aborted:
                result.abort()

    def abort(self) -> None:
        """Ask the engine to end this request."""
        with self._lock:
            if not self._aborted and self._result is not None:
                self._result.abort()
            self._aborted = True


@final
class ActiveRequests:
    """Watches all requests and ends those whose client went away.

    Args:
        period_s: How often to look.
    """

    def __init__(self, period_s: float) -> None:
        self._requests: set[ActiveRequest] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._period_s = period_s
        self._watcher = threading.Thread(target=self._watch, name="cancellation", daemon=True)
        self._watcher.start()

    def add(self, request_id: str, sender: Any) -> ActiveRequest:  # noqa: ANN401 - Triton's type
        """Begin to watch a request."""
        request = ActiveRequest(request_id, sender)
        with self._lock:
            self._requests.add(request)
        return request

    def remove(self, request: ActiveRequest) -> None:
        """Stop watching a request."""
        with self._lock:
            self._requests.discard(request)

    def abort(self, request_id: str) -> None:
        """End every request with this id; one that is already over is left alone."""
        for request in self._snapshot():
            if request.request_id == request_id:
                request.abort()

    def close(self) -> None:
        """End every request and stop watching."""
        self._closing.set()
        self._watcher.join()
        for request in self._snapshot():
            request.abort()

    def _snapshot(self) -> list[ActiveRequest]:
        with self._lock:
            return list(self._requests)

    def _watch(self) -> None:
        while not self._closing.wait(self._period_s):
            for request in self._snapshot():
                if request.sender.is_cancelled():
                    request.abort()
