"""Queries that the driver runs itself, with the engine of delta-rs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from instep_spark.lake.sql.literals import NAMED_STREAMS, StreamKey, in_stream, text

__all__ = ["between_sql", "query", "rows_among"]

_LISTED: Final = 2_000
"""So many values a list has at most: to parse one of 20,000 takes half a second …"""
_SEPARATOR: Final = "\x1f"
"""… so more stand in one literal, with this between them, and are joined with the column."""


def rows_among(column: str, values: Iterable[str]) -> Callable[[str], str] | None:
    """What leaves of a relation the rows with one of these values in a column, however many: it
    returns SQL, what follows FROM. None: a value has the character that would separate them.
    """
    values = list(dict.fromkeys(values))
    if len(values) <= _LISTED:
        named = f"{column} IN ({', '.join(map(text, values))})" if values else "false"
        return lambda relation: f"{relation} WHERE {named}"
    joined = _SEPARATOR.join(values)
    if joined.count(_SEPARATOR) >= len(values):
        return None
    listed = f"SELECT unnest(string_to_array({text(joined)}, chr({ord(_SEPARATOR)}))) AS listed"
    # The left side of a join is held in memory, so that is the list. Of `IN (SELECT …)` it is the
    # relation.
    return lambda relation: f"({listed}) JOIN {relation} ON {column} = listed"


def between_sql(begin: Mapping[StreamKey, int], upto: Mapping[StreamKey, int]) -> str:
    """SQL, what follows FROM: the rows of `t` of these streams behind the ordinal in `begin` and up
    to the one in `upto`; both have the same streams. It is `rows_between` for DataFusion.
    """
    if len(upto) <= NAMED_STREAMS:
        bounds = (
            f"({in_stream(key)} AND ordinal > {begin[key]} AND ordinal <= {last})"
            for key, last in upto.items()
        )
        return f"t WHERE {' OR '.join(bounds) or 'false'}"
    listed = ", ".join(
        f"({text(key[0])}, {text(key[1])}, {begin[key]}, {last})" for key, last in upto.items()
    )
    return (
        f"(VALUES {listed}) AS asked (asker, asked, begin_at, end_at) JOIN (SELECT * FROM t WHERE "
        f"ordinal > {min(begin.values())} AND ordinal <= {max(upto.values())}) t "
        "ON consumer = asker AND stream = asked AND ordinal > begin_at AND ordinal <= end_at"
    )


def query(table: DeltaTable, sql: str) -> pa.Table:
    """Return what a query of the table, in which it is `t`, finds."""
    found = pa.table(QueryBuilder().register("t", table).execute(sql).read_all())
    return found.cast(pa.schema([field.with_type(_plain(field.type)) for field in found.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that Spark knows for one of DataFusion."""
    if kind == pa.string_view():
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind
