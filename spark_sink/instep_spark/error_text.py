"""What a user is told of a foreign error: Spark and delta-rs add plans and traces to theirs."""

from __future__ import annotations

from typing import Final

__all__ = ["first_line", "is_disk_full"]

_FULL: Final = ("No space left", "StorageFull", "Disk quota", "File too large")


def first_line(error: BaseException, limit_chars: int | None = 400) -> str:
    """The first line of the text of an error, or the name of its type."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:limit_chars]


def is_disk_full(text: str) -> bool:
    """Whether the text of an error, of Python, delta-rs or Java, tells that there is no room."""
    return any(word in text for word in _FULL)
