"""What a user is told of a foreign error: Spark and delta-rs add plans and traces to theirs."""

from __future__ import annotations

__all__ = ["first_line"]


def first_line(error: BaseException, limit_chars: int | None = 400) -> str:
    """The first line of the text of an error, or the name of its type."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:limit_chars]
