"""The machine's clock."""

from __future__ import annotations

import time
from typing import final


@final
class SystemClock:
    """Real time."""

    def now(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
