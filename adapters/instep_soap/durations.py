"""Durations of XML Schema (``PT1M30S``), as seconds."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["read_duration_s", "write_duration"]

_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})D)?"
    r"(?:T(?=[\d.])(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{0,9})?)S)?)?",
    re.ASCII,
)
_SECONDS: Final = (365 * 86_400, 30 * 86_400, 86_400, 3_600, 60, 1)


def read_duration_s(text: str) -> float | None:
    """The seconds of a duration; a month counts 30 days and a year 365. None: it is none, or it is
    negative.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        return None
    return sum(float(part or 0) * s for part, s in zip(found.groups(), _SECONDS, strict=True))


def write_duration(seconds: float) -> str:
    """A duration in seconds, milliseconds at most: ``PT90S``."""
    return f"PT{max(seconds, 0.0):.3f}".rstrip("0").rstrip(".") + "S"
