"""Literals of Spark SQL, conditions for data skipping, and small relations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["StreamKey", "in_any_stream", "in_stream", "of_streams", "ordinals", "text"]

_SPECIAL: Final = re.compile(r"['\\$]")
StreamKey = tuple[str, str]
"""Consumer and stream."""


def text(value: str) -> str:
    """A string as a literal of Spark SQL, whatever the session takes for an escape."""
    # A session may read a backslash as itself (spark.sql.parser.escapedStringLiterals), and puts
    # its configuration in the place of ${key} (spark.sql.variable.substitute).
    if _SPECIAL.search(value):
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"'{value}'"


def in_stream(key: StreamKey) -> str:
    """SQL: the row belongs to this stream."""
    return f"consumer = {text(key[0])} AND stream = {text(key[1])}"


def in_any_stream(keys: Iterable[StreamKey]) -> str:
    """SQL: the row belongs to one of these streams."""
    return "(" + (" OR ".join(f"({in_stream(key)})" for key in keys) or "false") + ")"


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


def ordinals(spark: SparkSession, **columns: Mapping[StreamKey, int]) -> DataFrame:
    """Return a relation of consumer, stream and these ordinals to join with; all have the same
    streams.

    By way of Arrow: a list of Python's rows would start Spark's Python workers.
    """
    keys = list(next(iter(columns.values())))
    table = {
        "consumer": pa.array([consumer for consumer, _ in keys], pa.string()),
        "stream": pa.array([stream for _, stream in keys], pa.string()),
        **{name: pa.array([of[key] for key in keys], pa.int64()) for name, of in columns.items()},
    }
    schema = ", ".join(
        ["consumer STRING", "stream STRING", *(f"{name} BIGINT" for name in columns)]
    )
    return spark.createDataFrame(pa.table(table), schema).hint("broadcast")
