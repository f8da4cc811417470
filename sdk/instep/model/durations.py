"""Durations as text for people."""

from __future__ import annotations

__all__ = ["duration"]


def duration(seconds: float | None) -> str:
    """A duration for people: 3 ms, 12 s, 10 min, 4 h, 3 d; — for None."""
    if seconds is None:
        return "—"
    if seconds == float("inf"):
        return "for ever"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size or seconds == size:
            whole = seconds >= 100 * size
            return f"{seconds / size:,.0f} {unit}" if whole else f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"
