"""A fixed number of sessions, handed out so that what was read before is not read again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import final

from causal_lm import CausalModel, Session


@final
class SessionPool:
    """Sessions of one model: at most ``slots`` at a time. Thread safe.

    A free session keeps its tokens until it is needed for other ones; the least recently
    released goes first.

    Args:
        model: Makes the sessions.
        slots: How many there may be.
    """

    def __init__(self, model: CausalModel, slots: int) -> None:
        self.model = model
        self._free: list[Session] = []
        self._unmade = slots
        self._changed = threading.Condition()

    def acquire(self, ids: Sequence[int], *, timeout_s: float | None = None) -> Session:
        """Take the free session that shares the longest beginning with ``ids``.

        The session is rewound to what it shares, at most ``len(ids) - 1`` tokens, so that
        at least one token is left to read for its logits. Waits while none is free.

        Raises:
            TimeoutError: none became free in ``timeout_s`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(self._available, timeout_s):
                raise TimeoutError("every session is in use")
            session, shared = self._choose(ids)
        if shared < session.length:
            session.rewind(shared)
        return session

    def release(self, session: Session) -> None:
        """Give a session back; its tokens may serve a later request."""
        with self._changed:
            if self.model.supports_rewind or session.length == 0:
                self._free.append(session)
            else:
                self._unmade += 1
            self._changed.notify()

    def _available(self) -> bool:
        return bool(self._free) or self._unmade > 0

    def _choose(self, ids: Sequence[int]) -> tuple[Session, int]:
        """Prefer shared tokens, then a session that was never used, then the oldest."""
        shared = [s.shared(ids) for s in self._free]
        best = max(range(len(shared)), key=shared.__getitem__, default=-1)
        if self._unmade and (best < 0 or shared[best] == 0):
            self._unmade -= 1
            return self.model.session(), 0
        return self._free.pop(best), shared[best]
