"""The requests that are being served, so that one can be ended from outside."""

from __future__ import annotations

import threading
from typing import Any, final


@final
class ActiveRequest:
    """One request from its arrival to its last response.

    Its response sender belongs to the thread that serves it: asking Triton's sender about
    cancellation after the final response was sent ends the server (2.51), so no other
    thread may ask.

    Args:
        request_id: The client's; may be empty and need not be unique.
        sender: Its response sender, which knows whether the client went away.
    """

    def __init__(self, request_id: str, sender: Any) -> None:  # noqa: ANN401 - Triton's type
        self.request_id = request_id
        self.sender = sender
        self._abort = threading.Event()

    def abort(self) -> None:
        """Ask for this request's end; may come before it has started."""
        self._abort.set()

    def should_end(self) -> bool:
        """Tell whether the client went away or asked for the end."""
        return self._abort.is_set() or bool(self.sender.is_cancelled())


@final
class ActiveRequests:
    """All requests that have not been answered to their end. Thread safe."""

    def __init__(self) -> None:
        self._requests: set[ActiveRequest] = set()
        self._lock = threading.Lock()

    def add(self, request_id: str, sender: Any) -> ActiveRequest:  # noqa: ANN401 - Triton's type
        """Remember a request."""
        request = ActiveRequest(request_id, sender)
        with self._lock:
            self._requests.add(request)
        return request

    def remove(self, request: ActiveRequest) -> None:
        """Forget a request."""
        with self._lock:
            self._requests.discard(request)

    def abort(self, request_id: str) -> None:
        """End every request with this id; one that is already over is left alone."""
        for request in self._snapshot():
            if request.request_id == request_id:
                request.abort()

    def abort_all(self) -> None:
        """End every request."""
        for request in self._snapshot():
            request.abort()

    def _snapshot(self) -> list[ActiveRequest]:
        with self._lock:
            return list(self._requests)
