"""Unit constants, and formatting for people (used by ``cli`` only)."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
MS_PER_S: Final = 1000.0


def format_bytes(count: int) -> str:
    """Return a byte count in the largest binary unit that keeps it above one."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < KIB or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{size:.2f} {unit}"
        size /= KIB
    raise AssertionError("unreachable")  # pragma: no cover


def format_count(count: int) -> str:
    """Return a whole number with thousands separators."""
    return f"{count:,}"


def format_ms(seconds: float) -> str:
    """Return a duration in milliseconds."""
    return f"{seconds * MS_PER_S:.1f} ms"
