"""Literals of Spark SQL, and what is told to data skipping with them."""

from __future__ import annotations

from collections.abc import Iterable

from instep_spark.lake.survey import StreamKey

__all__ = ["any_of", "of_streams", "text", "whose"]


def text(value: str) -> str:
    """A string as a literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def whose(key: StreamKey) -> str:
    """SQL: the row belongs to this stream."""
    return f"consumer = {text(key[0])} AND stream = {text(key[1])}"


def any_of(keys: Iterable[StreamKey]) -> str:
    """SQL: the row belongs to one of these streams."""
    return "(" + (" OR ".join(f"({whose(key)})" for key in keys) or "false") + ")"


def of_streams(keys: Iterable[StreamKey]) -> str:
    """SQL for data skipping: the row `t` may belong to one of these streams."""
    keys = list(keys)
    consumers = sorted({consumer for consumer, _ in keys})
    streams = sorted({stream for _, stream in keys})
    if len(streams) > 50:
        return "true"
    return (
        f"t.consumer IN ({', '.join(map(text, consumers))}) "
        f"AND t.stream IN ({', '.join(map(text, streams))})"
    )
