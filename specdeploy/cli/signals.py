"""Signals become a switch that workflows look at."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final, final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@final
class SignalSwitch:
    """Pressed by SIGINT, SIGTERM or SIGHUP while its block runs.

    A signal raises nothing by itself, so that no clean-up is cut short by it.
    """

    def __init__(self) -> None:
        self._presses = 0
        self._breaking = False

    @property
    def pressed(self) -> bool:
        """True once a signal came."""
        return self._presses > 0

    @property
    def pressed_again(self) -> bool:
        """True once a second one came."""
        return self._presses > 1

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals over until the block ends."""
        before = {number: signal.signal(number, self._press) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def breaking(self) -> Iterator[None]:
        """Let a signal end what runs inside.

        Raises:
            KeyboardInterrupt: a signal came before or comes meanwhile.
        """
        self._breaking = True
        try:
            if self.pressed:
                raise KeyboardInterrupt
            yield
        finally:
            self._breaking = False

    def _press(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._presses += 1
        if self._breaking:
            raise KeyboardInterrupt
