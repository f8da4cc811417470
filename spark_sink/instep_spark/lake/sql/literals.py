"""Literals of Spark SQL, conditions for data skipping, and small relations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "NAMED_STREAMS",
    "StreamKey",
    "in_any_stream",
    "in_stream",
    "of_streams",
    "ordinals",
    "rows_behind",
    "rows_between",
    "text",
]

_SPECIAL: Final = re.compile(r"['\\$]")
_NAMED: Final = 500
"""So many values a condition names at most: each is compared with the statistics of each file."""
NAMED_STREAMS: Final = 50
"""So many streams a condition names at most, each with bounds of its own: it is evaluated for each
row."""
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
    return " AND ".join(
        _one_of(f"t.{name}", sorted({key[at] for key in keys}))
        for at, name in enumerate(("consumer", "stream"))
    )


def _one_of(column: str, values: list[str]) -> str:
    if len(values) > _NAMED:
        return f"{column} BETWEEN {text(values[0])} AND {text(values[-1])}"
    return f"{column} IN ({', '.join(map(text, values)) or 'NULL'})"


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


def rows_between(
    rows: DataFrame, begin: Mapping[StreamKey, int], upto: Mapping[StreamKey, int]
) -> DataFrame:
    """Return the rows of these streams behind the ordinal in `begin` and up to the one in `upto`;
    both have the same streams. Literals tell by the statistics of files which of them to read.
    """
    if len(upto) > NAMED_STREAMS:
        rows = rows.where(f"ordinal > {min(begin.values())} AND ordinal <= {max(upto.values())}")
        joined = rows.join(
            ordinals(rows.sparkSession, begin=begin, upto=upto), ["consumer", "stream"]
        )
        return joined.where("ordinal > begin AND ordinal <= upto").drop("begin", "upto")
    bounds = (
        f"({in_stream(key)} AND ordinal > {begin[key]} AND ordinal <= {last})"
        for key, last in upto.items()
    )
    return rows.where(" OR ".join(bounds) or "false")


def rows_behind(rows: DataFrame, known: Mapping[StreamKey, int]) -> DataFrame:
    """Return the rows with a larger ordinal than their stream has in `known`, or of a stream that
    it lacks.
    """
    if len(known) > NAMED_STREAMS:
        joined = rows.join(ordinals(rows.sparkSession, known=known), ["consumer", "stream"], "left")
        return joined.where("ordinal > coalesce(known, 0)").drop("known")
    for key, ordinal in known.items():
        rows = rows.where(f"NOT ({in_stream(key)} AND ordinal <= {ordinal})")
    return rows
