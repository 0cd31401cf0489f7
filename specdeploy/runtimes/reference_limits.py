"""What the reference runtime's models serve at most, in either shape."""

from __future__ import annotations

from typing import Final

MAX_DRAFT_LENGTH: Final = 16
"""The most tokens that are drafted per step, whoever asks: the settings or a request."""
